package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/worker"
	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

type demoCommand struct {
	Jobs   int           `default:"200" placeholder:"N" help:"Number of calls (default ${default})."`
	Rate   int           `default:"20" placeholder:"N" help:"Calls per second that the API allows (default ${default})."`
	Margin time.Duration `default:"150ms" placeholder:"DURATION" help:"Margin of the limit, an allowance for network jitter (default ${default}). With 0s expect a few 429s."`
}

func (demoCommand) Help() string {
	return `Starts a small API that allows a number of calls in any second, by its own clock, and answers 429 to other calls. Then it enqueues jobs that call the API under a limit, and runs them on a Redis in memory. The live page shows them.

The exit code is 0 only if the API rejected no call and every job ran once.`
}

const demoConfig = `
limits:
  api: {kind: sliding_log, rate: %d/s, margin: %s}
tasks:
  http:request: {limits: [{limit: api}]}
`

func (c *demoCommand) Run(ctx context.Context, stdio cli.IO) error {
	if c.Jobs < 1 || c.Rate < 1 {
		return cli.Usagef("--jobs %d --rate %d: want at least 1 of each", c.Jobs, c.Rate)
	}
	if c.Margin < 0 || c.Margin >= time.Second || c.Margin%time.Microsecond != 0 {
		return cli.Usagef("--margin %s: want 0s to less than 1s, in whole microseconds", c.Margin)
	}
	conf, err := config.Parse("demo", fmt.Appendf(nil, demoConfig, c.Rate, c.Margin))
	if err != nil {
		return err
	}
	m := miniredis.NewMiniRedis()
	defer m.Close()
	m.ClockTTL(true) // keys expire by themselves
	rdb, end, err := config.Embedded(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }}).Connect(ctx)
	if err != nil {
		return err
	}
	defer end()
	limiter, denials := conf.WaitDB(rdb), new(atomic.Int64)
	p, err := page.New(page.Options{Redis: rdb, Limiter: limiter.Limiter, Scope: conf.Scope})
	if err != nil {
		return err
	}
	defer p.Close()
	api := &limitedAPI{rate: c.Rate, calls: map[string]int{}}
	mux := http.NewServeMux()
	mux.Handle("/api/", api)
	mux.Handle("/", p)
	l, err := worker.Listen(ctx, ":0")
	if err != nil {
		return err
	}
	server := worker.HTTPServer(mux)
	go func() { _ = server.Serve(l) }()
	defer worker.CloseServer(server)
	fmt.Fprintf(stdio.Err, "worker: watch it at http://%s/\n", l.Addr())
	client := scheduler.NewClient(rdb)
	for i := range c.Jobs {
		payload := fmt.Appendf(nil, `{"url": "http://%s/api/%d"}`, l.Addr(), i)
		if _, err := client.EnqueueContext(ctx, asynq.NewTask(tasks.TypeHTTPRequest, payload)); err != nil {
			return err
		}
	}
	rules := scheduler.Rules{Limits: conf.Limits, RuleFor: config.RuleIn(func() *config.Config { return conf })}
	jobs, err := scheduler.NewServer(rdb, rules, asynq.Config{Concurrency: 2 * c.Rate, LogLevel: asynq.FatalLevel},
		scheduler.WithLimiter(limiter.Limiter), scheduler.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	handlers, start := asynq.NewServeMux(), time.Now()
	handlers.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			decision, _ := scheduler.GetDecision(ctx)
			denials.Add(int64(decision.Denials))
			return next.ProcessTask(ctx, task)
		})
	})
	handlers.Handle(tasks.TypeHTTPRequest, &tasks.HTTPHandler{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err := jobs.Start(handlers); err != nil {
		return err
	}
	defer jobs.Shutdown()

	// The shortest time: as many calls as the API allows at once, then as many after each second and margin.
	ideal := time.Duration((c.Jobs-1)/c.Rate) * (time.Second + c.Margin)
	progress := cli.NewProgress(stdio.Err)
	defer progress.Clear()
	for done := 0; done < c.Jobs && time.Since(start) < 3*ideal+30*time.Second; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
		api.mu.Lock()
		done = len(api.calls)
		api.mu.Unlock()
		progress.Show("%d of %d calls", done, c.Jobs)
	}
	progress.Clear()
	api.mu.Lock()
	defer api.mu.Unlock()
	type row struct{ what, measured, wanted string }
	err = cli.Table(stdio.Out, []row{
		{"jobs done", fmt.Sprintf("%d of %d", len(api.calls), c.Jobs), "all, each once"},
		{"jobs that ran twice", strconv.Itoa(api.served - len(api.calls)), "0"},
		{"denials per job", fmt.Sprintf("%.2f", float64(denials.Load())/float64(c.Jobs)), "at most about 1"},
		{"the API's busiest second", fmt.Sprintf("%d calls", api.busiest), fmt.Sprintf("at most %d", c.Rate)},
		{"answers 429", strconv.Itoa(api.rejected), "0"},
		{"time", fmt.Sprintf("%.2f s", api.last.Sub(start).Seconds()), fmt.Sprintf("little more than %.2f s", ideal.Seconds())},
	}, "WHAT", "MEASURED", "WANTED")
	if err != nil {
		return err
	}
	if api.rejected > 0 || api.served != c.Jobs || len(api.calls) != c.Jobs {
		fmt.Fprintln(stdio.Out, "Something went wrong: see the table.")
		return cli.Failed
	}
	fmt.Fprintln(stdio.Out, "The API rejected no call, and every job ran once.")
	return nil
}
