// Command llm sends questions, one per line, to a model under the quotas of its API: requests per
// minute, tokens per minute and tokens per day. The tokens of an answer are known only afterwards,
// so each call is charged an estimate first and then settled. The difference is available to other
// calls at once.
//
//	REDIS_URL=redis://localhost:6379 MODEL_URL=https://api.example.com/v1/chat/completions \
//	    go run ./examples/llm < questions.txt
//
// It prints the answers, and runs until a signal.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

const maxTokens = 300 // of an answer

// config lets a call that began before a signal finish. What stops the program, such as systemd, must
// wait longer than that. An interrupted call has paid its estimate and is made again.
var config = asynq.Config{Concurrency: 10, ShutdownTimeout: 90 * time.Second}

var limits = []throttle.Limit{
	{Name: "requests", Kind: throttle.TokenBucket, Rate: throttle.PerMinute(500), Capacity: 10},
	{Name: "tokens", Kind: throttle.TokenBucket, Rate: throttle.PerMinute(30_000), Capacity: 5_000},
	{Name: "day", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1_000_000)},
}

// needs returns what a question needs: one request, and the most tokens that it can take.
func needs(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
	estimate := len(task.Payload())/3 + maxTokens
	return scheduler.Rule{Needs: []throttle.Need{
		{Limit: "requests"}, {Limit: "tokens", Cost: estimate}, {Limit: "day", Cost: estimate},
	}}, nil
}

func ask(ctx context.Context, task *asynq.Task) error {
	body, err := json.Marshal(map[string]any{
		"model": os.Getenv("MODEL"), "max_tokens": maxTokens,
		"messages": []map[string]string{{"role": "user", "content": string(task.Payload())}},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("MODEL_URL"), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv("MODEL_KEY"))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := tasks.CheckResponse(ctx, resp); err != nil { // a 429 blocks the limits for all workers
		return err
	}
	var answer struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			TotalTokens int `json:"total_tokens"`
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Choices) == 0 {
		return fmt.Errorf("the model's answer is of another form: %w", err)
	}
	fmt.Println(answer.Choices[0].Message.Content)
	for _, limit := range []string{"tokens", "day"} {
		if err := scheduler.Settle(ctx, limit, answer.Usage.TotalTokens); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	opts, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(opts)
	server, err := scheduler.NewServer(rdb, scheduler.Rules{Limits: limits, RuleFor: needs}, config)
	if err != nil {
		log.Fatal(err)
	}
	client := scheduler.NewClient(rdb)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if _, err := client.Enqueue(asynq.NewTask("ask", []byte(lines.Text()))); err != nil {
			log.Fatal(err)
		}
	}
	mux := asynq.NewServeMux()
	mux.Use(new(tasks.Feedback).Middleware)
	mux.HandleFunc("ask", ask)
	if err := server.Run(mux); err != nil { // until a signal
		log.Fatal(err)
	}
}
