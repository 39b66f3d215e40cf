package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

type failoverCommand struct {
	Jobs    int           `default:"100000" help:"How many jobs wait."`
	Lanes   int           `default:"10000" help:"In how many lanes: each has a limit of its own under one that all share."`
	Rate    int           `default:"200" help:"Permits a second of the limit that all share."`
	Settle  time.Duration `default:"5s" help:"How long both processes work before one is killed."`
	Observe time.Duration `default:"10s" help:"How long the other is observed after that."`
	JSON    bool          `name:"json" help:"Print one JSON array."`
}

// failoverRow is what became of the permits when the process died that gave
// turns.
type failoverRow struct {
	Case   string  `json:"case"`
	System string  `json:"system"`
	Jobs   int     `json:"jobs"`
	Lanes  int     `json:"lanes"`
	Fill   float64 `json:"fill_s"`   // until all jobs waited
	Unused float64 `json:"unused_s"` // the longest in which no job started, from the kill on
}

var failoverColumns = []column[failoverRow]{
	{"case", func(r failoverRow) string { return r.Case }},
	{"system", func(r failoverRow) string { return r.System }},
	{"fill s", func(r failoverRow) string { return number(&r.Fill, 1) }},
	{"permits unused s", func(r failoverRow) string { return number(&r.Unused, 2) }},
}

// Run has one process give turns, kills it as a power cut would, and measures for
// how long another uses no permits.
func (c *failoverCommand) Run(b *bench) error {
	if c.Jobs < 2 || c.Lanes < 1 || c.Lanes > c.Jobs || c.Rate < 1 {
		return fmt.Errorf("--jobs %d --lanes %d --rate %d: want 2 jobs or more, at most as many lanes, and a rate of 1 or more", c.Jobs, c.Lanes, c.Rate)
	}
	s := spec{Jobs: c.Jobs, Rate: c.Rate, Capacity: 10, Hosts: c.Lanes, HostRate: 1}
	row := failoverRow{Case: fmt.Sprintf("%s jobs in %s lanes, %s/s", thousands(c.Jobs), thousands(c.Lanes), thousands(c.Rate)), System: "headgate", Jobs: c.Jobs, Lanes: c.Lanes}
	if err := c.measure(b, s, &row); err != nil {
		return err
	}
	return printRows(b, c.JSON, failoverColumns, []failoverRow{row})
}

func (c *failoverCommand) measure(b *bench, s spec, row *failoverRow) (err error) {
	began := time.Now()
	limiter, err := shutLimits(b, s)
	if err != nil {
		return err
	}
	first, err := startWorker(b) // alone, so it gives turns
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.kill()) }()
	if err := c.fill(b); err != nil {
		return err
	}
	row.Fill = time.Since(began).Seconds()
	b.note("%s wait after %.0f s", row.Case, row.Fill)
	second, err := startWorker(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.kill()) }()
	if err := limiter.Set(b.ctx, s.limit()); err != nil {
		return err
	}
	if err := b.sleep(c.Settle); err != nil { // both work as usual by then
		return err
	}
	killed := time.Now().UnixMicro()
	if err := first.kill(); err != nil {
		return err
	}
	if err := b.sleep(c.Observe); err != nil {
		return err
	}
	starts, err := second.startsAfter(b, killed+c.Observe.Microseconds())
	row.Unused = longestGap(starts, killed).Seconds()
	return err
}

// shutLimits defines the limits, the shared one without a permit for years: so each
// job that asks is denied and knows for how long.
func shutLimits(b *bench, s spec) (*lanes.Lanes, error) {
	limiter, err := define(b, s, false)
	if err != nil {
		return nil, err
	}
	none := s.limit()
	none.Rate = throttle.Rate{N: 1, Per: throttle.Month}
	if err := limiter.Set(b.ctx, none); err != nil {
		return nil, err
	}
	_, err = limiter.AllowN(b.ctx, shared, "", s.Capacity)
	return limiter, err
}

// fill enqueues the jobs, the hosts in turns, and waits until all were denied.
func (c *failoverCommand) fill(b *bench) error {
	const producers = 8
	var group sync.WaitGroup
	errs := make([]error, producers)
	for p := range producers {
		group.Go(func() {
			for i := p; i < c.Jobs && errs[p] == nil; i += producers {
				errs[p] = b.enqueue(job{i, fmt.Sprintf("host-%d", i%c.Lanes)})
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	inspector := asynq.NewInspectorFromRedisClient(b.rdb)
	for {
		info, err := inspector.GetQueueInfo("default")
		if err != nil || info.Retry == c.Jobs {
			return err
		}
		if err := b.sleep(100 * time.Millisecond); err != nil {
			return err
		}
	}
}

// longestGap is the longest between two of some moments, from one on, that is the
// first of them.
func longestGap(moments []int64, from int64) time.Duration {
	longest, last := int64(0), from
	for _, at := range slices.Sorted(slices.Values(moments)) {
		if at > from {
			longest, last = max(longest, at-last), at
		}
	}
	return time.Duration(longest) * time.Microsecond
}
