// Command demo runs jobs that call a rate-limited API, on a Redis in memory, and shows that the API
// rejects no call. It exits with 1 if the API rejects one, or if a job does not run exactly once.
// With -serve it only serves the API.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ExitOnError)
	jobs := flags.Int("jobs", 100, "number of calls")
	rate := flags.Int("rate", 20, "calls that the API allows in any second")
	margin := flags.Duration("margin", 150*time.Millisecond, "margin of the limit, an allowance for network jitter; with 0s expect a few 429s")
	serve := flags.String("serve", "", "only serve the API at this `address`, and print each second how many calls it served and rejected")
	_ = flags.Parse(args) // exits on errors
	api := &limitedAPI{rate: *rate, calls: map[string]int{}}
	if *jobs < 1 || *rate < 1 {
		return fmt.Errorf("-jobs %d -rate %d: want at least 1 of each", *jobs, *rate)
	}
	if *serve != "" {
		return api.serve(ctx, *serve, out)
	}
	return demo(ctx, api, *jobs, throttle.Limit{
		Name: "api", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(*rate), Margin: *margin,
	}, out)
}

func demo(ctx context.Context, api *limitedAPI, jobs int, limit throttle.Limit, out io.Writer) error {
	m := miniredis.NewMiniRedis()
	defer m.Close()
	m.ClockTTL(true) // keys expire by themselves
	rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
	defer rdb.Close()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return err
	}
	limiter := throttle.New(rdb, throttle.Options{})
	p, err := page.New(page.Options{Redis: rdb, Limiter: limiter})
	if err != nil {
		return err
	}
	defer p.Close()
	mux := http.NewServeMux()
	mux.Handle("/api/", api)
	mux.Handle("/", p)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	fmt.Fprintf(out, "watch it at http://%s/\n", l.Addr())

	client := scheduler.NewClient(rdb)
	for i := range jobs {
		if _, err := client.EnqueueContext(ctx, asynq.NewTask("call", fmt.Appendf(nil, "http://%s/api/%d", l.Addr(), i))); err != nil {
			return err
		}
	}
	rules := scheduler.Rules{Limits: []throttle.Limit{limit}, RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) {
		return scheduler.Rule{Needs: []throttle.Need{{Limit: limit.Name}}}, nil
	}}
	worker, err := scheduler.NewServer(rdb, rules, asynq.Config{Concurrency: 2 * api.rate, LogLevel: asynq.FatalLevel},
		scheduler.WithLimiter(limiter), scheduler.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	start, denials := time.Now(), new(atomic.Int64)
	if err := worker.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		decision, _ := scheduler.GetDecision(ctx)
		denials.Add(int64(decision.Denials))
		return call(ctx, string(task.Payload()))
	})); err != nil {
		return err
	}
	defer worker.Shutdown()

	// The shortest time: as many calls as the API allows at once, then as many after each second and margin.
	ideal := time.Duration((jobs-1)/api.rate) * (time.Second + limit.Margin)
	timeout := time.After(3*ideal + 30*time.Second)
	for seconds := time.Tick(time.Second); api.done() < jobs; {
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-timeout:
			return fmt.Errorf("only %d of %d calls after %s", api.done(), jobs, time.Since(start).Round(time.Second))
		case <-time.After(20 * time.Millisecond):
		case <-seconds:
			fmt.Fprintf(out, "%d of %d calls\n", api.done(), jobs)
		}
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	const row = "%-25s%-12v%v\n"
	fmt.Fprintf(out, row, "WHAT", "MEASURED", "WANTED")
	fmt.Fprintf(out, row, "jobs that ran twice", api.served-len(api.calls), 0)
	fmt.Fprintf(out, row, "denials per job", fmt.Sprintf("%.2f", float64(denials.Load())/float64(jobs)), "at most about 1")
	fmt.Fprintf(out, row, "the API's busiest second", api.busiest, fmt.Sprintf("at most %d calls", api.rate))
	fmt.Fprintf(out, row, "answers 429", api.rejected, 0)
	fmt.Fprintf(out, row, "time", fmt.Sprintf("%.2f s", api.last.Sub(start).Seconds()), fmt.Sprintf("little more than %.2f s", ideal.Seconds()))
	if api.rejected > 0 || api.served != jobs {
		return errors.New("something went wrong: see the table")
	}
	fmt.Fprintf(out, "The API rejected no call, and all %d jobs ran once.\n", jobs)
	return nil
}

// call makes the call of a job.
func call(ctx context.Context, url string) error {
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
