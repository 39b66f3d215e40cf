package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

type neighbourCommand struct {
	Jobs  int           `default:"100000" help:"How many throttled jobs are enqueued, as lines of the command enqueue."`
	Every time.Duration `default:"20ms" help:"How often a job of another queue is enqueued meanwhile."`
	JSON  bool          `name:"json" help:"Print one JSON array."`
}

// neighbourRow is what became of jobs of one queue while many of another were enqueued.
type neighbourRow struct {
	Case   string  `json:"case"`
	System string  `json:"system"`
	Lines  float64 `json:"lines_per_s"`
	Jobs   int     `json:"neighbours"`
	P50    float64 `json:"start_p50_ms"` // from the enqueue to the start
	P99    float64 `json:"start_p99_ms"`
}

var neighbourColumns = []column[neighbourRow]{
	{"case", func(r neighbourRow) string { return r.Case }},
	{"system", func(r neighbourRow) string { return r.System }},
	{"lines/s", func(r neighbourRow) string { return thousands(int(r.Lines)) }},
	{"neighbours", func(r neighbourRow) string { return fmt.Sprint(r.Jobs) }},
	{"start p50 ms", func(r neighbourRow) string { return number(&r.P50, 1) }},
	{"start p99 ms", func(r neighbourRow) string { return number(&r.P99, 1) }},
}

// Run enqueues throttled jobs by the command enqueue, and jobs without a limit in another
// queue of the same server, until all of the former are there.
func (c *neighbourCommand) Run(b *bench) error {
	if c.Jobs < 1 || c.Every <= 0 {
		return fmt.Errorf("--jobs %d --every %s: want more than 0", c.Jobs, c.Every)
	}
	row, err := c.measure(b)
	if err != nil {
		return err
	}
	return printRows(b, c.JSON, neighbourColumns, []neighbourRow{row})
}

func (c *neighbourCommand) measure(b *bench) (row neighbourRow, err error) {
	folder, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	enqueue := filepath.Join(folder, "enqueue")
	if out, err := exec.CommandContext(b.ctx, "go", "build", "-o", enqueue, "github.com/headgate/headgate/cmd/enqueue").CombinedOutput(); err != nil {
		return row, fmt.Errorf("build enqueue: %w: %s", err, out)
	}
	var starts moments
	server, err := neighbourServer(b, &starts)
	if err != nil {
		return row, err
	}
	defer server.Shutdown()
	add := exec.CommandContext(b.ctx, enqueue, "--redis", "redis://"+b.server.Addr(), "-")
	add.Stdin, add.Stderr = bytes.NewReader(bytes.Repeat([]byte(`{"type":"throttled","queue":"throttled","payload":{"n":1}}`+"\n"), c.Jobs)), b.stderr
	began, added := time.Now(), make(chan error, 1)
	if err := add.Start(); err != nil {
		return row, err
	}
	go func() { added <- add.Wait() }()
	client, tick := scheduler.NewClient(b.rdb), time.NewTicker(c.Every)
	defer tick.Stop()
	for row.Jobs = 0; ; row.Jobs++ {
		select {
		case <-tick.C:
			now := strconv.FormatInt(time.Now().UnixNano(), 10)
			if _, err := client.Enqueue(asynq.NewTask("neighbour", []byte(now)), asynq.Queue("neighbours")); err != nil {
				return row, err
			}
			continue
		case err := <-added:
			if err != nil {
				return row, err
			}
		}
		break
	}
	row.Lines = float64(c.Jobs) / time.Since(began).Seconds()
	for starts.len() < row.Jobs {
		if err := b.sleep(10 * time.Millisecond); err != nil {
			return row, err
		}
	}
	row.Case, row.System = fmt.Sprintf("%s throttled jobs are enqueued", thousands(c.Jobs)), "headgate"
	row.P50, row.P99 = starts.quantile(0.5), starts.quantile(0.99)
	return row, nil
}

// neighbourServer runs throttled jobs of one queue and, noting when, those of another.
func neighbourServer(b *bench, starts *moments) (*scheduler.Server, error) {
	rules := scheduler.Rules{
		Limits: []throttle.Limit{{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(200), Capacity: 10}},
		For: func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
			if task.Type() == "throttled" {
				return scheduler.Rule{Needs: []throttle.Need{{Limit: "api"}}}, nil
			}
			return scheduler.Rule{}, nil
		},
	}
	config := asynq.Config{Concurrency: 10, LogLevel: asynq.ErrorLevel, Queues: map[string]int{"throttled": 1, "neighbours": 1}}
	server, err := scheduler.NewServer(b.rdb, rules, config, scheduler.WithLogger(silent))
	if err != nil {
		return nil, err
	}
	return server, server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if ns, err := strconv.ParseInt(string(task.Payload()), 10, 64); err == nil && task.Type() == "neighbour" {
			starts.add(time.Since(time.Unix(0, ns)))
		}
		return nil
	}))
}

// moments are how long after their enqueue jobs began. It is safe for concurrent use.
type moments struct {
	mu  sync.Mutex
	all []time.Duration
}

func (m *moments) add(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, d)
}

func (m *moments) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all)
}

// quantile is in milliseconds; 0 where there was no job.
func (m *moments) quantile(q float64) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(m.all))
	return sorted[int(q*float64(len(sorted)-1))].Seconds() * 1000
}
