package cron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler/cron"
)

// nightly is a Runner of one entry on a Redis of its own, at noon.
func nightly() (runner *cron.Runner, end func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	server.SetTime(time.Date(2026, 3, 6, 12, 0, 0, 0, time.UTC))
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	runner = cron.New(rdb, asynq.NewClientFromRedisClient(rdb), cron.Options{Scope: "billing"})
	err = runner.Set([]cron.Entry{{Name: "nightly", Cron: "30 2 * * *", Type: "report:send"}})
	if err != nil {
		panic(err)
	}
	return runner, func() {
		rdb.Close()
		server.Close()
	}
}

// The ticks during a pause do not come back.
func ExampleRunner_Pause() {
	runner, end := nightly()
	defer end()
	ctx := context.Background()
	for _, change := range []func(context.Context, string) error{runner.Pause, runner.Resume} {
		if err := change(ctx, "nightly"); err != nil {
			fmt.Println(err)
			return
		}
		list, err := runner.List(ctx, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(list[0].Entry.Name, list[0].Paused, list[0].Next)
	}
	// Output:
	// nightly true []
	// nightly false [2026-03-07 02:30:00 +0000 UTC]
}

func ExampleRunner_Trigger() {
	runner, end := nightly()
	defer end()
	id, err := runner.Trigger(context.Background(), "nightly")
	fmt.Println(id, err)
	_, err = runner.Trigger(context.Background(), "nihgtly")
	fmt.Println(err)
	// Output:
	// billing/nightly@run-1772798400000000 <nil>
	// no such schedule: "nihgtly"
}
