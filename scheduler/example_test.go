package scheduler_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// Two constructors and rules make an asynq program obey limits.
func Example() {
	redisServer, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer redisServer.Close()
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	defer rdb.Close()

	rules := scheduler.Rules{
		Limits: []throttle.Limit{{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(50)}},
		RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) {
			return scheduler.Rule{Needs: []throttle.Need{{Limit: "api"}}}, nil
		},
	}
	server, err := scheduler.NewServer(rdb, rules, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel})
	if err != nil {
		panic(err)
	}
	client := scheduler.NewClient(rdb)

	mux := asynq.NewServeMux()
	var jobs sync.WaitGroup
	mux.HandleFunc("greet", func(_ context.Context, task *asynq.Task) error {
		fmt.Printf("hello %s\n", task.Payload())
		jobs.Done()
		return nil
	})
	for _, name := range []string{"Ada", "Grace", "Barbara"} {
		jobs.Add(1)
		if _, err := client.Enqueue(asynq.NewTask("greet", []byte(name))); err != nil {
			panic(err)
		}
	}
	if err := server.Start(mux); err != nil {
		panic(err)
	}
	jobs.Wait()
	server.Shutdown()
	// Output:
	// hello Ada
	// hello Grace
	// hello Barbara
}

// Many tasks go in few round trips, and in their order.
func ExampleClient_EnqueueAll() {
	redisServer, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer redisServer.Close()
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	defer rdb.Close()

	client := scheduler.NewClient(rdb)
	once := asynq.Unique(time.Hour)
	answers := client.EnqueueAll(context.Background(),
		asynq.NewTask("report", []byte("monday"), once),
		asynq.NewTask("report", []byte("tuesday"), once),
		asynq.NewTask("report", []byte("monday"), once),
	)
	for _, answer := range answers {
		fmt.Println(answer.Err)
	}
	// Output:
	// <nil>
	// <nil>
	// task already exists
}

// A batch ends when all its jobs have ended, and then enqueues a job.
func ExampleBatch() {
	redisServer, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer redisServer.Close()
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	defer rdb.Close()
	client, ctx := scheduler.NewClient(rdb), context.Background()

	rules := scheduler.Rules{RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) { return scheduler.Rule{}, nil }}
	server, err := scheduler.NewServer(rdb, rules, asynq.Config{Concurrency: 2, LogLevel: asynq.FatalLevel})
	if err != nil {
		panic(err)
	}
	told := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.HandleFunc("divide", func(_ context.Context, task *asynq.Task) error {
		if string(task.Payload()) == "0" {
			return fmt.Errorf("division by zero: %w", asynq.SkipRetry)
		}
		return nil
	})
	mux.HandleFunc("tell", func(context.Context, *asynq.Task) error {
		close(told)
		return nil
	})
	if err := server.Start(mux); err != nil {
		panic(err)
	}
	defer server.Shutdown()

	if err := client.OpenBatch(ctx, "divisions", asynq.NewTask("tell", nil)); err != nil {
		panic(err)
	}
	for _, divisor := range []string{"2", "1", "0"} {
		if _, err := client.Enqueue(asynq.NewTask("divide", []byte(divisor)), scheduler.InBatch("divisions")); err != nil {
			panic(err)
		}
	}
	if err := client.CloseBatch(ctx, "divisions"); err != nil {
		panic(err)
	}
	status, err := client.WaitBatch(ctx, "divisions", nil)
	if err != nil {
		panic(err)
	}
	<-told
	fmt.Printf("%d jobs: %d completed, %d failed\n", status.Jobs, status.Completed, status.Failed)
	// Output: 3 jobs: 2 completed, 1 failed
}
