package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/dashboards/metrics"
	counts "github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

type metricsCommand struct {
	Jobs        int  `default:"20000" help:"How many jobs each run drains."`
	Concurrency int  `default:"10" help:"Jobs that each worker runs at once."`
	Pairs       int  `default:"5" help:"Rounds, in each of which there is a run without and one with each. The median of their ratios is printed."`
	Waiting     int  `default:"100000" help:"Jobs that wait while a scrape is measured."`
	Keys        int  `default:"10000" help:"Keys that they wait for."`
	Scrapes     int  `default:"20" help:"Scrapes that are measured."`
	JSON        bool `name:"json" help:"Print one JSON array."`
}

type metricsRow struct {
	With     string   `json:"with"`
	JobsPer  *float64 `json:"jobs_per_s,omitempty"`
	Ratio    *float64 `json:"ratio,omitempty"`
	Low      *float64 `json:"ratio_low,omitempty"` // of all pairs
	High     *float64 `json:"ratio_high,omitempty"`
	CPU      *float64 `json:"cpu_us_per_job,omitempty"`
	CPURatio *float64 `json:"cpu_ratio,omitempty"`
	ScrapeMS *float64 `json:"scrape_ms,omitempty"`
	WorstMS  *float64 `json:"worst_scrape_ms,omitempty"`
}

var metricsColumns = []column[metricsRow]{
	{"with", func(r metricsRow) string { return r.With }},
	{"jobs/s", func(r metricsRow) string { return number(r.JobsPer, 0) }},
	{"ratio to without", func(r metricsRow) string { return number(r.Ratio, 3) }},
	{"of all pairs", metricsRow.spread},
	{"CPU µs/job", func(r metricsRow) string { return number(r.CPU, 1) }},
	{"ratio", func(r metricsRow) string { return number(r.CPURatio, 3) }},
	{"scrape ms", func(r metricsRow) string { return number(r.ScrapeMS, 1) }},
	{"worst", func(r metricsRow) string { return number(r.WorstMS, 1) }},
}

// Run drains the same no-op jobs without history and logs and with them, one after
// the other, so that what else the machine does hits both; and then scrapes while
// many jobs wait for many keys. CPU is that of this process and of Redis, enqueuing
// included: a machine that does other things measures it better than speed.
func (c *metricsCommand) Run(b *bench) error {
	if c.Jobs < 1 || c.Concurrency < 1 || c.Pairs < 1 || c.Scrapes < 1 || c.Keys < 1 || c.Waiting < c.Keys {
		return errors.New("--jobs, --concurrency, --pairs, --scrapes, --keys: want 1 or more; --waiting: want --keys or more")
	}
	subjects := []metricsSubject{
		{"nothing", openMetrics(false, false), nil},
		{"history, logs", openMetrics(true, false), nil},
		{"history, logs, a scrape a second", openMetrics(true, true), nil},
	}
	b.note("metrics: %d runs of %s jobs, which take %s where %s jobs a second are done, and a minute for scrapes", c.Pairs*len(subjects), thousands(c.Jobs),
		c.expected(len(subjects)), thousands(usualPerSecond))
	if _, err := c.drain(b, subjects[0].start); err != nil { // the first of all is slower
		return err
	}
	for pair := range c.Pairs {
		for i := range subjects { // each is the first, the second and the last in turns
			subject := &subjects[(pair+i)%len(subjects)]
			run, err := c.drain(b, subject.start)
			if err != nil {
				return fmt.Errorf("%s: %w", subject.with, err)
			}
			subject.runs = append(subject.runs, run)
			b.note("metrics: round %d of %d, with %s: %.0f jobs/s, %.1f µs CPU a job", pair+1, c.Pairs, subject.with, run.speed, run.cpu)
		}
	}
	var rows []metricsRow
	for _, subject := range subjects {
		rows = append(rows, subject.row(subjects[0].runs))
	}
	scrape, worst, err := c.scrape(b)
	if err != nil {
		return err
	}
	rows = append(rows, metricsRow{With: fmt.Sprintf("%d waiting, %d keys", c.Waiting, c.Keys), ScrapeMS: &scrape, WorstMS: &worst})
	return printRows(b, c.JSON, metricsColumns, rows)
}

// usualPerSecond is what two quiet cores do.
const usualPerSecond = 2500

// expected is about how long the runs take, a second for each around it included.
func (c *metricsCommand) expected(subjects int) time.Duration {
	each := time.Duration(c.Jobs)*time.Second/usualPerSecond + time.Second
	return (time.Duration(1+c.Pairs*subjects) * each).Round(10 * time.Second)
}

// drain measures one run.
func (c *metricsCommand) drain(b *bench, start starter) (drained, error) {
	before, err := b.allCPU()
	if err != nil {
		return drained{}, err
	}
	speed, err := (&overheadCommand{Jobs: c.Jobs, Concurrency: c.Concurrency}).drain(b, start)
	if err != nil {
		return drained{}, err
	}
	after, err := b.allCPU()
	return drained{speed, float64((after - before).Microseconds()) / float64(c.Jobs)}, err
}

// drained is what one run took: jobs a second, and microseconds of CPU for each.
type drained struct{ speed, cpu float64 }

// metricsSubject is what is measured, and how its runs went, one in each round.
type metricsSubject struct {
	with  string
	start starter
	runs  []drained
}

// row holds each run against that of the same round without anything.
func (s metricsSubject) row(without []drained) metricsRow {
	middle := func(value func(i int) float64) *float64 {
		var values []float64
		for i := range s.runs {
			values = append(values, value(i))
		}
		m := median(values)
		return &m
	}
	speed := func(i int) float64 { return s.runs[i].speed / without[i].speed }
	row := metricsRow{
		With:    s.with,
		JobsPer: middle(func(i int) float64 { return s.runs[i].speed }), Ratio: middle(speed),
		CPU: middle(func(i int) float64 { return s.runs[i].cpu }), CPURatio: middle(func(i int) float64 { return s.runs[i].cpu / without[i].cpu }),
	}
	if len(s.runs) > 1 && &s.runs[0] != &without[0] {
		low, high := speed(0), speed(0)
		for i := range s.runs {
			low, high = min(low, speed(i)), max(high, speed(i))
		}
		row.Low, row.High = &low, &high
	}
	return row
}

// spread is the least and the greatest ratio of any pair.
func (r metricsRow) spread() string {
	if r.Low == nil {
		return ""
	}
	return fmt.Sprintf("%.3f to %.3f", *r.Low, *r.High)
}

// allCPU is how long this process and Redis have computed.
func (b *bench) allCPU() (time.Duration, error) {
	redis, err1 := b.usage()
	var own syscall.Rusage
	err2 := syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	return redis.cpu + time.Duration(own.Utime.Nano()+own.Stime.Nano()), errors.Join(err1, err2)
}

// openMetrics is a server under a limit that never denies; one that is recorded
// keeps its history and logs what it has to say.
func openMetrics(recorded, scraped bool) starter {
	return func(b *bench, s spec, _ bool, h *history) (func(), error) {
		limit := throttle.Limit{Name: "open", Kind: throttle.Funnel, Rate: throttle.PerSecond(openRatePerSecond), Capacity: openRatePerSecond}
		rule := scheduler.Rule{Needs: []throttle.Need{{Limit: limit.Name}}}
		rules := scheduler.Rules{
			Limits: []throttle.Limit{limit},
			For:    func(context.Context, *asynq.Task) (scheduler.Rule, error) { return rule, nil },
		}
		log := silent
		if recorded { // as a worker's by default, but for where it goes
			log = slog.New(slog.NewTextHandler(io.Discard, nil)) //nolint:sloglint // what it costs to make a line is measured
		}
		srv, err := scheduler.NewServer(b.rdb, rules, serverConfig(s), scheduler.WithLogger(log))
		if err != nil {
			return nil, err
		}
		if !recorded {
			counts.Of(srv).Off()
		}
		stop := func() {}
		if scraped {
			stop = scrapeEachSecond(b, srv)
		}
		return func() { stop(); srv.Shutdown() }, srv.Start(handler(h))
	}
}

// scrapeEachSecond is a Prometheus that is in a hurry.
func scrapeEachSecond(b *bench, srv *scheduler.Server) (stop func()) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(srv, b.rdb, metrics.Options{}))
	ctx, cancel := context.WithCancel(b.ctx)
	var scraping sync.WaitGroup
	scraping.Go(func() {
		second := time.NewTicker(time.Second)
		defer second.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-second.C:
				_, _ = registry.Gather()
			}
		}
	})
	return func() { cancel(); scraping.Wait() }
}

// scrape is how many milliseconds a scrape takes while many jobs wait: the median,
// and the worst.
func (c *metricsCommand) scrape(b *bench) (middle, worst float64, err error) {
	if err := b.empty(); err != nil {
		return 0, 0, err
	}
	limit := throttle.Limit{Name: "full", Kind: throttle.Funnel, Rate: throttle.Every(24 * time.Hour)}
	rules := scheduler.Rules{
		Limits: []throttle.Limit{limit},
		For:    func(context.Context, *asynq.Task) (scheduler.Rule, error) { return scheduler.Rule{}, nil },
	}
	srv, err := scheduler.NewServer(b.rdb, rules, serverConfig(spec{Concurrency: 1}), scheduler.WithLogger(silent), scheduler.WithPolling())
	if err != nil {
		return 0, 0, err
	}
	defer srv.Shutdown()
	if err := srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })); err != nil {
		return 0, 0, err
	}
	b.note("metrics: %s jobs begin to wait for %s keys, and are counted", thousands(c.Waiting), thousands(c.Keys))
	if err := c.wait(b, limit.Name); err != nil {
		return 0, 0, err
	}
	collector := metrics.New(srv, b.rdb, metrics.Options{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	if err := b.surveyed(c.Waiting); err != nil {
		return 0, 0, err
	}
	var took []float64
	for range c.Scrapes {
		began := time.Now()
		if _, err := registry.Gather(); err != nil {
			return 0, 0, err
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	return median(took), slices.Max(took), nil
}

// wait has jobs wait for keys of a limit, after one of each key that is allowed.
func (c *metricsCommand) wait(b *bench, limit string) error {
	limiter := lanes.New(throttle.New(b.rdb, throttle.RedisOptions{}))
	var next atomic.Int64
	var asking sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		asking.Go(func() {
			for errs[i] == nil {
				n := int(next.Add(1)) - 1
				if n >= c.Waiting+c.Keys {
					return
				}
				job := lanes.Job{JobID: throttle.JobID{Queue: "default", ID: fmt.Sprint(n)}}
				_, errs[i] = limiter.Acquire(b.ctx, job, throttle.Need{Limit: limit, Key: fmt.Sprint("key-", n%c.Keys)})
			}
		})
	}
	asking.Wait()
	return errors.Join(errs...)
}

// surveyed waits until that many jobs are known to wait.
func (b *bench) surveyed(jobs int) error {
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	for {
		survey, err := counts.ReadSurvey(ctx, b.rdb, "default")
		if err != nil {
			return err
		}
		if survey != nil && survey.Limits["full"].Jobs >= jobs {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}
