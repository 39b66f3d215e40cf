// Command library is an asynq program whose jobs obey a limit: fifty calls a
// second to each host, whatever the number of workers. It differs from a
// program without limits by two constructors and the rules.
//
//	REDIS_URL=redis://localhost:6379 go run ./examples/library
//
// It enqueues five calls, and runs until a signal.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

func main() {
	opts, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(opts)
	config := asynq.Config{Concurrency: 10}
	rules := scheduler.Rules{
		Limits: []throttle.Limit{{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(50)}},
		RuleFor: func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
			return scheduler.Rule{Needs: []throttle.Need{{Limit: "host", Key: string(task.Payload())}}}, nil
		},
	}
	server, err := scheduler.NewServer(rdb, rules, config) // was asynq.NewServer
	if err != nil {
		log.Fatal(err)
	}
	client := scheduler.NewClient(rdb) // was asynq.NewClient
	for range 5 {
		if _, err := client.Enqueue(asynq.NewTask("call", []byte("api.example.com"))); err != nil {
			log.Fatal(err)
		}
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("call", func(_ context.Context, task *asynq.Task) error {
		fmt.Printf("calling %s\n", task.Payload())
		return nil
	})
	if err := server.Run(mux); err != nil { // until a signal
		log.Fatal(err)
	}
}
