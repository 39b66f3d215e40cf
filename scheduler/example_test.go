package scheduler_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// Three lines make an asynq program obey limits.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	limiter := throttle.New(rdb, throttle.RedisOptions{})
	err = limiter.Define(context.Background(), throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(50)})
	if err != nil {
		panic(err)
	}
	rules := func(context.Context, *asynq.Task) (scheduler.Rule, error) {
		return scheduler.Rule{Needs: []throttle.Need{{Limit: "api"}}}, nil
	}

	mux := asynq.NewServeMux()
	var jobs sync.WaitGroup
	mux.HandleFunc("greet", func(_ context.Context, task *asynq.Task) error {
		fmt.Printf("hello %s\n", task.Payload())
		jobs.Done()
		return nil
	})

	hg := scheduler.New(rdb, limiter, rules, scheduler.Options{})                                                   // 1
	srv := asynq.NewServerFromRedisClient(rdb, hg.Config(asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel})) // 2
	mux.Use(hg.Middleware)                                                                                          // 3

	client := asynq.NewClientFromRedisClient(rdb)
	for _, name := range []string{"Ada", "Grace", "Barbara"} {
		jobs.Add(1)
		if _, err := client.Enqueue(scheduler.NewTask("greet", []byte(name), 5)); err != nil {
			panic(err)
		}
	}
	if err := srv.Start(mux); err != nil {
		panic(err)
	}
	jobs.Wait()
	srv.Shutdown()
	if err := hg.Close(); err != nil {
		panic(err)
	}
	// Output:
	// hello Ada
	// hello Grace
	// hello Barbara
}

// A delay grows with each failure, and is left to chance by default.
func ExampleBackoff() {
	b := scheduler.Backoff{Jitter: scheduler.None}
	for n := range 4 {
		fmt.Println(b.Delay(n))
	}
	// Output:
	// 1s
	// 2s
	// 4s
	// 8s
}
