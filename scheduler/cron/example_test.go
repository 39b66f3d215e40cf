package cron_test

import (
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler/cron"
)

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
	// schedule "nightly": zone "Mars/Base": want an IANA time zone such as UTC or America/New_York
	// schedule "hourly": name "hourly": it is there twice: each schedule needs a name of its own
	// schedule "hourly": cron "@every 100ms": want @every and whole seconds, at least 1s, such as @every 90s
}
