// Package demo runs jobs against an API that counts for itself how often it
// is called, and reports what the API saw.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// Options say how much to do.
type Options struct {
	Jobs int
	Rate int // calls a second that the API allows
	// Margin is how much longer one call may take to arrive than another that
	// sets out a second later, without the API seeing both within a second.
	Margin   time.Duration
	Redis    string    // URL; empty means a Redis of the demo's own
	Progress io.Writer // gets a bar if it is a terminal
	// Watch, if not nil, shows what goes on in a scope until done is called.
	Watch func(rdb redis.UniversalClient, limiter *lanes.Lanes, scope string) (done func(), err error)
}

// headgateYAML is the demo's config: what a user would write.
const headgateYAML = `
limits:
  api:     {kind: sliding_log, rate: %[1]d/s, margin: %[3]s}
  account: {kind: sliding_log, rate: %[2]d/s, margin: %[3]s}
tasks:
  http:request:
    limits:
      - limit: api
      - {limit: account, key: payload.headers.Account}
`

// Run makes the calls and waits until all of them have been made. Whatever the
// API saw is in the result; an error means that the demo could not run.
func Run(ctx context.Context, o Options) (Result, error) {
	perAccount := max(1, o.Rate*2/5)
	conf, err := config.Parse("demo", fmt.Appendf(nil, headgateYAML, o.Rate, perAccount, o.Margin))
	if err != nil {
		return Result{}, err
	}
	rdb, done, err := connect(ctx, o.Redis)
	if err != nil {
		return Result{}, err
	}
	defer done()
	name := "demo-" + uuid.NewString()
	d := &demo{
		Options: o, config: conf, rdb: rdb, queue: name,
		limiter: lanes.New(throttle.New(rdb, throttle.RedisOptions{Scope: name, App: conf.App})),
		api:     newAPI(o.Jobs, o.Rate, perAccount),
	}
	err = d.run(ctx)
	return d.result(), errors.Join(err, d.clean())
}

// connect returns the Redis of the URL, or one in memory for this process alone.
func connect(ctx context.Context, url string) (redis.UniversalClient, func(), error) {
	if url != "" {
		r, err := config.ParseRedisURL(url)
		if err != nil {
			return nil, nil, cli.Usagef("--redis: %w", err)
		}
		rdb, end, err := r.Connect(ctx)
		return rdb, func() { _ = end() }, err
	}
	m := miniredis.NewMiniRedis()
	rdb, end, err := config.Embedded(func(context.Context, string, string) (net.Conn, error) { return m.Dial() }).Connect(ctx)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return rdb, func() { _ = end(); m.Close() }, nil
}

type demo struct {
	Options
	config  *config.Config
	rdb     redis.UniversalClient
	limiter *lanes.Lanes
	queue   string
	api     *API
	denials atomic.Int64
	start   time.Time
}

func (d *demo) run(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d.api}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	if err := d.enqueue(ctx, "http://"+listener.Addr().String()); err != nil {
		return err
	}
	rules := scheduler.Rules{Limits: d.config.Limits, For: config.RuleIn(func() *config.Config { return d.config })}
	worker, err := scheduler.NewServer(d.rdb, rules, asynq.Config{
		Concurrency: 2 * d.Rate, Queues: map[string]int{d.queue: 1}, LogLevel: asynq.FatalLevel,
	}, scheduler.WithLimiter(d.limiter.Redis), scheduler.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			decision, _ := scheduler.GetDecision(ctx)
			d.denials.Add(int64(decision.Denials))
			return next.ProcessTask(ctx, task)
		})
	})
	mux.Handle(tasks.TypeHTTPRequest, &tasks.HTTPHandler{AllowPrivate: loopback})
	if d.Watch != nil {
		done, err := d.Watch(d.rdb, d.limiter, d.queue)
		if err != nil {
			return err
		}
		defer done()
	}
	d.start = time.Now()
	if err := worker.Start(mux); err != nil {
		return err
	}
	defer worker.Shutdown()
	return d.wait(ctx)
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func (d *demo) enqueue(ctx context.Context, url string) error {
	client := scheduler.NewClient(d.rdb)
	for i := range d.Jobs {
		call := tasks.HTTPRequest{
			URL:     url + "/?job=" + strconv.Itoa(i),
			Headers: map[string]string{accountHeader: string(rune('a' + i%accounts))},
		}
		payload, err := call.MarshalJSON()
		if err != nil {
			return err
		}
		task := scheduler.NewTask(tasks.TypeHTTPRequest, payload, asynq.MaxRetry(3), asynq.Queue(d.queue))
		if _, err := client.EnqueueContext(ctx, task); err != nil {
			return err
		}
	}
	return nil
}

// wait shows progress until all jobs have run, or have had far more time than
// they need.
func (d *demo) wait(ctx context.Context) error {
	bar := cli.NewBar(d.Progress, d.Jobs, "calls")
	defer bar.Finish()
	ctx, cancel := context.WithTimeout(ctx, 3*d.ideal()+30*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-d.api.done:
			return nil
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil // the result says what is missing
			}
			return context.Cause(ctx)
		case <-tick.C:
			bar.Set(d.result().Done)
		}
	}
}

// ideal is the least time in which the limits let all calls through: as many as
// the API allows at once, then as many again after each second and its margin.
func (d *demo) ideal() time.Duration {
	return time.Duration((d.Jobs-1)/d.Rate) * (time.Second + d.Margin)
}

func (d *demo) result() Result {
	a := d.api
	a.mu.Lock()
	defer a.mu.Unlock()
	r := Result{
		Jobs: d.Jobs, Done: len(a.runs), DenialsPerJob: float64(d.denials.Load()) / float64(d.Jobs),
		BusiestSecond: a.all.busiest, AllowedPerSecond: a.perSecond, HTTP429: a.refused,
		Ideal: d.ideal().Seconds(), allowedPerAccount: a.perAccount,
	}
	if !a.last.IsZero() {
		r.Elapsed = a.last.Sub(d.start).Seconds()
	}
	for _, runs := range a.runs {
		if runs > 1 {
			r.RanTwice++
		}
	}
	for _, account := range a.accounts {
		r.busiestAccount = max(r.busiestAccount, account.busiest)
	}
	return r
}

// clean removes what the demo left in Redis, but for meters and history, which
// expire.
func (d *demo) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	for _, l := range d.config.Limits {
		errs = append(errs, d.limiter.Delete(ctx, l.Name))
	}
	for _, name := range []string{"totals", "changes", "changelog", "deleted", "epoch", "seq", "weights"} {
		errs = append(errs, d.rdb.Del(ctx, lua.Prefix(d.queue)+name).Err())
	}
	err := asynq.NewInspectorFromRedisClient(d.rdb).DeleteQueue(d.queue, true)
	if !errors.Is(err, asynq.ErrQueueNotFound) {
		errs = append(errs, err)
	}
	for _, name := range []string{"processed", "failed", asynqdb.Bell} { // which asynq leaves
		errs = append(errs, d.rdb.Del(ctx, asynqdb.Key(d.queue, name)).Err())
	}
	return errors.Join(errs...)
}

// Result is what the demo found.
type Result struct {
	Jobs             int     `json:"jobs"`
	Done             int     `json:"done"`
	RanTwice         int     `json:"ran_twice"`
	DenialsPerJob    float64 `json:"denials_per_job"`
	BusiestSecond    int     `json:"busiest_second"`
	AllowedPerSecond int     `json:"allowed_per_second"`
	HTTP429          int     `json:"http_429"`
	Elapsed          float64 `json:"elapsed_s"`
	Ideal            float64 `json:"ideal_s"`

	busiestAccount, allowedPerAccount int
}

// Good is whether the API had nothing to refuse and every job ran once.
func (r Result) Good() bool {
	return r.Done == r.Jobs && r.RanTwice == 0 && r.HTTP429 == 0 &&
		r.BusiestSecond <= r.AllowedPerSecond && r.busiestAccount <= r.allowedPerAccount
}

// Print writes the result as a table, with a verdict under it.
func (r Result) Print(w io.Writer) error {
	rows := [][]string{
		{"jobs done", fmt.Sprintf("%d of %d", r.Done, r.Jobs), "all, each once"},
		{"jobs that ran twice", strconv.Itoa(r.RanTwice), "0"},
		{"denials per job", fmt.Sprintf("%.2f", r.DenialsPerJob), "at most about 1"},
		{"the API's busiest second", fmt.Sprintf("%d calls", r.BusiestSecond), fmt.Sprintf("at most %d", r.AllowedPerSecond)},
		{"an account's busiest second", fmt.Sprintf("%d calls", r.busiestAccount), fmt.Sprintf("at most %d", r.allowedPerAccount)},
		{"answers 429", strconv.Itoa(r.HTTP429), "0"},
		{"time", fmt.Sprintf("%.2f s", r.Elapsed), fmt.Sprintf("little more than %.2f s", r.Ideal)},
	}
	if err := cli.Table(w, []string{"", "MEASURED", "WANTED"}, rows); err != nil {
		return err
	}
	verdict := "The API had nothing to refuse, and every job ran once."
	if !r.Good() {
		verdict = "Something went wrong: see the table."
	}
	_, err := fmt.Fprintln(w, verdict)
	return err
}
