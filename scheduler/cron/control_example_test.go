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

func ExampleRunner_List() {
	runner, end := nightly()
	defer end()
	list, err := runner.List(context.Background(), 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range list {
		fmt.Println(s.Entry.Name, "ticks at", s.Next)
	}
	// Output:
	// nightly ticks at [2026-03-07 02:30:00 +0000 UTC 2026-03-08 02:30:00 +0000 UTC]
}

func ExampleRunner_Pause() {
	runner, end := nightly()
	defer end()
	if err := runner.Pause(context.Background(), "nightly"); err != nil {
		fmt.Println(err)
		return
	}
	list, err := runner.List(context.Background(), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(list[0].Paused, list[0].Next)
	// Output:
	// true []
}

// What was due during the pause does not come back.
func ExampleRunner_Resume() {
	runner, end := nightly()
	defer end()
	ctx := context.Background()
	for _, do := range []func(context.Context, string) error{runner.Pause, runner.Resume} {
		if err := do(ctx, "nightly"); err != nil {
			fmt.Println(err)
			return
		}
	}
	list, err := runner.List(ctx, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(list[0].Paused, list[0].Next)
	// Output:
	// false [2026-03-07 02:30:00 +0000 UTC]
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
