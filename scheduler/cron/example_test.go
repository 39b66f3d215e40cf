package cron_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler/cron"
)

// Every replica of a program may run this: each tick is enqueued once.
func ExampleRunner() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	runner := cron.New(rdb, asynq.NewClientFromRedisClient(rdb), cron.Options{})
	err := runner.Set([]cron.Entry{{
		Name: "nightly-report",
		Cron: "30 2 * * *",
		Zone: "America/New_York",
		Type: "report:send",
		Payload: func(tick time.Time) ([]byte, error) {
			return fmt.Appendf(nil, `{"day":%q}`, tick.Format(time.DateOnly)), nil
		},
		Missed:  cron.MissedOnce,
		Overlap: cron.OverlapSkip,
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runner.Run(ctx); err != nil {
		fmt.Println(err)
	}
}

func ExampleRunner_Set() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	runner := cron.New(rdb, asynq.NewClientFromRedisClient(rdb), cron.Options{})
	err := runner.Set([]cron.Entry{
		{Name: "hourly", Cron: "0 * * * *", Type: "sweep:all"},
		{Name: "nightly", Cron: "0 2 * * *", Zone: "Mars/Base", Type: "sweep:all"},
		{Name: "hourly", Cron: "@every 100ms", Type: "sweep:all"},
	})
	fmt.Println(err)
	// Output:
	// schedule "nightly": zone "Mars/Base": want an IANA time zone such as Europe/London
	// schedule "hourly": name "hourly": it is there twice: each schedule needs a name of its own
	// schedule "hourly": cron "@every 100ms": want @every and whole seconds, at least 1s, such as @every 90s
}
