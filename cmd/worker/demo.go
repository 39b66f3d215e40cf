package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/worker"
	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

const (
	// demoTimeout is how long the demo may take besides three times the time that its jobs need.
	demoTimeout = 30 * time.Second
	// demoInterval is the time between two looks at the calls.
	demoInterval = 20 * time.Millisecond
)

type demoCommand struct {
	Jobs   int           `default:"100" placeholder:"N" help:"Number of calls (default ${default})."`
	Rate   int           `default:"20" placeholder:"N" help:"Calls per second that the API allows (default ${default})."`
	Margin time.Duration `default:"150ms" placeholder:"DURATION" help:"Margin of the limit, an allowance for network jitter (default ${default}). With 0s expect a few 429s."`
}

func (demoCommand) Help() string {
	return `Starts a small API that allows a number of calls in any second, by its own clock, and answers 429 to other calls. Then it enqueues jobs that call the API under a limit, and runs them on a Redis in memory. The live page shows them.

The exit code is 0 only if the API rejected no call and every job ran once.`
}

func (c *demoCommand) Run(ctx context.Context, stdio cli.IO) error {
	limit := throttle.Limit{Name: "api", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(c.Rate), Margin: c.Margin}
	if err := limit.Validate(); err != nil || c.Jobs < 1 {
		return cli.Usagef("--jobs %d --rate %d --margin %s: want at least 1 of each, and a margin of less than 1s", c.Jobs, c.Rate, c.Margin)
	}
	api := &limitedAPI{rate: c.Rate, calls: map[string]int{}}
	m := miniredis.NewMiniRedis()
	defer m.Close()
	m.ClockTTL(true) // keys expire by the real clock
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
	defer rdb.Close()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return err
	}
	limiter := throttle.New(rdb, throttle.Options{})
	p, err := page.New(page.Options{Limiter: limiter})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/api/", api)
	mux.Handle("/", p)
	l, err := worker.Listen(ctx, ":0")
	if err != nil {
		return err
	}
	web := worker.HTTPServer(mux)
	go func() { _ = web.Serve(l) }()
	defer worker.CloseServer(web)
	fmt.Fprintf(stdio.Err, "%s: watch it at http://%s/\n", cli.Worker, l.Addr())

	client := scheduler.NewClient(rdb)
	for i := range c.Jobs {
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("call", fmt.Appendf(nil, "http://%s/api/%d", l.Addr(), i))); err != nil {
			return err
		}
	}
	rules := scheduler.Rules{Limits: []throttle.Limit{limit}, RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) {
		return scheduler.Rule{Needs: []throttle.Need{{Limit: limit.Name}}}, nil
	}}
	server, err := scheduler.NewServer(rdb, rules, asynq.Config{Concurrency: 2 * c.Rate, LogLevel: asynq.FatalLevel},
		scheduler.WithLimiter(limiter), scheduler.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	start, denials := time.Now(), new(atomic.Int64)
	if err := server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		decision, _ := scheduler.GetDecision(ctx)
		denials.Add(int64(decision.Denials))
		return callAPI(ctx, string(task.Payload()))
	})); err != nil {
		return err
	}
	defer server.Shutdown()

	// Ideally, Rate jobs make their calls at once, and Rate more after each second plus margin.
	ideal := time.Duration((c.Jobs-1)/c.Rate) * (time.Second + c.Margin)
	timeout := time.After(3*ideal + demoTimeout)
	for seconds := time.Tick(time.Second); api.done() < c.Jobs; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout:
			return fmt.Errorf("only %d of %d calls after %s", api.done(), c.Jobs, time.Since(start).Round(time.Second))
		case <-time.After(demoInterval):
		case <-seconds:
			fmt.Fprintf(stdio.Err, "%d of %d calls\n", api.done(), c.Jobs)
		}
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	type row struct{ what, measured, wanted string }
	err = cli.Table(stdio.Out, []row{
		{"jobs that ran twice", strconv.Itoa(api.served - len(api.calls)), "0"},
		{"denials per job", fmt.Sprintf("%.2f", float64(denials.Load())/float64(c.Jobs)), "at most about 1"},
		{"the API's busiest second", fmt.Sprintf("%d calls", api.busiest), fmt.Sprintf("at most %d", c.Rate)},
		{"answers 429", strconv.Itoa(api.rejected), "0"},
		{"time", fmt.Sprintf("%.2f s", api.last.Sub(start).Seconds()), fmt.Sprintf("little more than %.2f s", ideal.Seconds())},
	}, "WHAT", "MEASURED", "WANTED")
	if err == nil && (api.rejected > 0 || api.served != c.Jobs) {
		err = errors.New("something went wrong: see the table")
	}
	if err == nil {
		fmt.Fprintf(stdio.Out, "The API rejected no call, and all %d jobs ran once.\n", c.Jobs)
	}
	return err
}

// callAPI makes the call of a job.
func callAPI(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusTooManyRequests {
		return scheduler.RateLimited(time.Time{})
	}
	return nil
}
