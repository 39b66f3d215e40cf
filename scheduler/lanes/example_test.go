package lanes_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// A job that is denied waits in line, and is called when its permit exists.
// Package scheduler calls it; where nobody does, it is let by when it asks again
// at its time.
func ExampleLanes_Acquire() {
	clock, err := miniredis.Run() // stands for your Redis, and its clock stands still
	if err != nil {
		panic(err)
	}
	defer clock.Close()
	clock.SetTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	rdb := redis.NewClient(&redis.Options{Addr: clock.Addr()})
	defer rdb.Close()
	ctx := context.Background()

	limiter := lanes.New(throttle.New(rdb, throttle.RedisOptions{}))
	limiter.Define(ctx, throttle.Limit{Name: "api", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(1)})
	need := throttle.Need{Limit: "api"}
	for _, id := range []string{"first", "second", "third", "second"} {
		job := lanes.Job{JobID: throttle.JobID{Queue: "default", ID: id}}
		d, _ := limiter.Acquire(ctx, job, need)
		fmt.Println(id, d)
		if id == "third" {
			place, _, _ := limiter.Waiting(ctx, job.JobID)
			fmt.Println(id, "is", place.Position, "of", place.Waiting)
			clock.SetTime(d.At.Add(time.Minute))
		}
	}
	// Output:
	// first allowed by api, 0 of 1 left
	// second denied by api: its turn comes in about 1 min
	// third denied by api: its turn comes in about 2 min
	// third is 2 of 2
	// second allowed by api, 0 of 1 left
}
