// Command library is an asynq program whose jobs obey a limit: fifty calls a
// second of each host, whatever the number of workers. It differs from a
// program without limits by two constructors and the rules.
//
//	go run ./examples/library
//
// With REDIS_URL it is a worker that runs until a signal. Without, it has a Redis
// of its own, and ends with a table of what it did.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

const perSecond = 50 // of the limit

func main() {
	url := os.Getenv("REDIS_URL") // such as redis://localhost:6379
	if url == "" {
		demonstrate()
		return
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		log.Fatal(err)
	}
	server, mux := start(redis.NewClient(opts), 5, asynq.Config{Concurrency: 10})
	if err := server.Run(mux); err != nil { // until a signal
		log.Fatal(err)
	}
}

// start is the program: it enqueues calls, and has a server for them.
func start(rdb redis.UniversalClient, calls int, config asynq.Config) (*scheduler.Server, *asynq.ServeMux) {
	rules := scheduler.Rules{
		Limits: []throttle.Limit{{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(50)}},
		For: func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
			return scheduler.Rule{Needs: []throttle.Need{{Limit: "host", Key: string(task.Payload())}}}, nil
		},
	}
	server, err := scheduler.NewServer(rdb, rules, config) // was asynq.NewServer
	if err != nil {
		log.Fatal(err)
	}
	client := scheduler.NewClient(rdb) // was asynq.NewClient
	for range calls {
		if _, err := client.Enqueue(asynq.NewTask("call", []byte("api.example.com"))); err != nil {
			log.Fatal(err)
		}
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("call", func(_ context.Context, task *asynq.Task) error {
		fmt.Printf("calling %s\n", task.Payload())
		return nil
	})
	return server, mux
}

// demonstrate runs the program on a Redis of its own until all calls are made.
func demonstrate() {
	own := miniredis.NewMiniRedis()
	if err := own.Start(); err != nil {
		log.Fatal(err)
	}
	defer own.Close()
	const calls = 30
	began, made := time.Now(), make(chan time.Time, 2*calls)
	server, mux := start(redis.NewClient(&redis.Options{Addr: own.Addr()}), calls, asynq.Config{Concurrency: 10, LogLevel: asynq.WarnLevel})
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			made <- time.Now()
			return next.ProcessTask(ctx, task)
		})
	})
	if err := server.Start(mux); err != nil {
		log.Fatal(err)
	}
	time.AfterFunc(time.Minute, func() { log.Fatal("not all calls were made within a minute") })
	var times []time.Time
	for range calls {
		times = append(times, <-made)
	}
	server.Shutdown()
	slices.SortFunc(times, time.Time.Compare) // calls that overlap tell of themselves in any order
	early := 0
	for i, at := range times {
		if at.Sub(began) < time.Duration(i)*time.Second/perSecond {
			early++
		}
	}

	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\n\tASKED\tMEASURED\n")
	fmt.Fprintf(table, "calls\t%d\t%d\n", calls, calls+len(made))
	fmt.Fprintf(table, "a second\tat most %d\t%.1f\n", perSecond, (calls-1)/times[calls-1].Sub(times[0]).Seconds())
	fmt.Fprintf(table, "calls before their permit\t0\t%d\n", early)
	_ = table.Flush()
	if early+len(made) > 0 {
		os.Exit(1)
	}
}
