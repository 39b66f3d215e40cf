// Command llm shows how a model API's quotas of requests a minute, tokens a
// minute and tokens a day are used to the full and never exceeded, though
// nobody knows before an answer how many tokens it takes:
//
//   - A call is charged an estimate first, prompt and max_tokens, and settles
//     for what the answer says that it took. What was too much is there for others
//     at once.
//   - The limits are learnt from the x-ratelimit-* headers of the answers.
//
// Beside it the same calls run with the estimates alone.
//
//	go run ./examples/llm
//
// main.go is what a user would write; api.go is the API, with its own meter. A
// minute lasts 2 s and a day a minute.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/examples/internal/example"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

var calls = flag.Int("calls", 300, "how many questions there are")

func main() {
	flag.Parse()
	example.Main(func(ctx context.Context, t *example.Table) error {
		fmt.Printf("%d questions to a model, at most %d tokens a minute\n", *calls, tokensPerMinute)
		for _, settles := range []bool{true, false} {
			if err := run(ctx, t, settles); err != nil {
				return err
			}
		}
		return nil
	})
}

// guesses are the limits as long as no answer has told the true ones.
var guesses = []throttle.Limit{
	{Name: "requests-minute", Kind: throttle.TokenBucket, Rate: throttle.Rate{N: 10, Per: minute}, Capacity: 1},
	{Name: "tokens-minute", Kind: throttle.TokenBucket, Rate: throttle.Rate{N: 1000, Per: minute}, Capacity: 500},
	{Name: "tokens-day", Kind: throttle.FixedWindow, Rate: throttle.Rate{N: 10_000, Per: day}},
}

// ruleOf says what a question needs: a request, and as many tokens as it may take.
func ruleOf(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
	var q question
	if err := json.Unmarshal(task.Payload(), &q); err != nil {
		return scheduler.Rule{}, err
	}
	estimate := q.promptTokens() + q.MaxTokens
	return scheduler.Rule{Needs: []throttle.Need{
		{Limit: "requests-minute"},
		{Limit: "tokens-minute", Cost: estimate},
		{Limit: "tokens-day", Cost: estimate},
	}}, nil
}

type caller struct {
	url     string
	settles bool
	limiter throttle.Limiter
	done    chan struct{} // gets one for each answer

	mu      sync.Mutex
	limits  map[string]int // what the API has told
	denials int
}

func (c *caller) ask(ctx context.Context, task *asynq.Task) error {
	resp, err := http.Post(c.url, "application/json", bytes.NewReader(task.Payload()))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	upstream := tasks.ReadUpstream(resp.StatusCode, resp.Header, time.Now())
	if err := c.learn(ctx, upstream.Quotas); err != nil {
		return err
	}
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests:
		return scheduler.Blocked(upstream.Until)
	default:
		return fmt.Errorf("the model answered %s", resp.Status)
	}
	var a answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return err
	}
	if c.settles {
		for _, limit := range []string{"tokens-minute", "tokens-day"} {
			if err := scheduler.Settle(ctx, limit, a.Usage.TotalTokens); err != nil {
				return err
			}
		}
	}
	c.count(ctx)
	return nil
}

// learn changes the limits to what the API says of its own. Half a minute's quota
// is left to calls that arrive closer together than they were made.
func (c *caller) learn(ctx context.Context, quotas []tasks.Quota) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, limit := range guesses {
		for _, quota := range quotas {
			n := int(quota.Limit)
			if quota.Name != limit.Name || n < 1 || c.limits[quota.Name] == n {
				continue
			}
			limit.Rate.N = n
			if limit.Kind == throttle.TokenBucket {
				limit.Capacity = n / 2
			}
			if err := c.limiter.Set(ctx, limit); err != nil {
				return err
			}
			c.limits[quota.Name] = n
		}
	}
	return nil
}

func (c *caller) count(ctx context.Context) {
	d, _ := scheduler.GetDecision(ctx)
	c.mu.Lock()
	c.denials += d.Denials
	c.mu.Unlock()
	c.done <- struct{}{}
}

// run asks all questions and reports what the API has seen.
func run(ctx context.Context, t *example.Table, settles bool) error {
	own := miniredis.NewMiniRedis() // a Redis within this process
	if err := own.Start(); err != nil {
		return err
	}
	defer own.Close()
	rdb := redis.NewClient(&redis.Options{Addr: own.Addr()})
	defer rdb.Close()
	model := newAPI()
	server := httptest.NewServer(model)
	defer server.Close()
	c := &caller{url: server.URL + "/v1/chat/completions", settles: settles, done: make(chan struct{}, *calls), limits: map[string]int{}}
	c.limiter = throttle.New(rdb, throttle.RedisOptions{})

	if err := enqueue(ctx, scheduler.NewClient(rdb)); err != nil {
		return err
	}
	worker, err := scheduler.NewServer(rdb, scheduler.Rules{Limits: guesses, For: ruleOf},
		asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel}, scheduler.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("ask", c.ask)
	if err := worker.Start(mux); err != nil {
		return err
	}
	defer worker.Shutdown()
	for range *calls {
		select {
		case <-c.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	report(t, c, model)
	return nil
}

// enqueue adds the questions; each may take more tokens than its answer will.
func enqueue(ctx context.Context, client *scheduler.Client) error {
	for i := range *calls {
		q := question{Model: "local", MaxTokens: 300}
		q.Messages = []message{{"user", fmt.Sprintf("Question %d: %s?", i, strings.Repeat("why ", 40+i%80))}}
		payload, err := json.Marshal(q)
		if err != nil {
			return err
		}
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("ask", payload)); err != nil {
			return err
		}
	}
	return nil
}

func report(t *example.Table, c *caller, model *api) {
	model.mu.Lock()
	defer model.mu.Unlock()
	title := "settled"
	if !c.settles {
		title = "by estimates alone"
	}
	t.Promised(title+": calls answered", fmt.Sprint(*calls), fmt.Sprint(len(model.answered)), len(model.answered) == *calls)
	t.Once("  answered twice", model.answered)
	t.None("  refused by the API's own meter", model.refused)
	t.Promised("  limits learnt", "3", fmt.Sprint(len(c.limits)), len(c.limits) == 3)
	minutes := float64(model.last.Sub(model.first)) / float64(minute)
	perMinute := float64(model.used-tokensPerMinute/2) / minutes // after the first burst
	t.Measured("  tokens a minute", fmt.Sprint(tokensPerMinute), fmt.Sprintf("%.0f, %.1f %% of the quota", perMinute, 100*perMinute/tokensPerMinute))
	t.Denials("  denials per call", c.denials, *calls)
	t.Measured("  time", "-", fmt.Sprintf("%.1f s", model.last.Sub(model.first).Seconds()))
}
