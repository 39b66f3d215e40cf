package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

type backlogCommand struct {
	Jobs        int      `default:"10000" help:"How many jobs."`
	Rate        int      `default:"200" help:"Permits a second of the limit that all share."`
	Capacity    int      `default:"10" help:"Permits of it that can be taken at once."`
	Strict      bool     `help:"At most the rate in any second (sliding_log), in place of a funnel with a capacity."`
	Hosts       int      `help:"Hosts that the jobs are for, at random. Each has a limit of its own under the shared one."`
	HostRate    int      `default:"1" help:"Permits a second of each host, one at a time."`
	Arrive      int      `help:"Jobs enqueued a second while it runs. Otherwise all are there before the clock starts."`
	Against     []string `placeholder:"SYSTEM" help:"Systems to run beside headgate: wiki (the pattern of asynq's wiki with redis_rate and short polls), wiki-stock (at asynq's own polls), bullmq (needs Node.js)."`
	Concurrency int      `default:"10" help:"Jobs that each worker runs at once."`
	Repeat      int      `default:"1" help:"Runs of each system, in turns. Medians are printed, and what was over at its worst."`
	Waiting     int      `default:"10000" help:"Jobs with which bytes per waiting job are measured; 0 leaves that out."`
	JSON        bool     `name:"json" help:"Print one JSON array."`
}

func (c *backlogCommand) spec() (spec, error) {
	s := spec{c.Jobs, c.Rate, c.Capacity, c.Strict, c.Hosts, c.HostRate, c.Arrive, c.Concurrency, c.Waiting}
	var errs []error
	for _, flag := range []struct {
		name        string
		value, from int
	}{
		{"jobs", c.Jobs, 2},
		{"rate", c.Rate, 1},
		{"capacity", c.Capacity, 1},
		{"hosts", c.Hosts, 0},
		{"host-rate", c.HostRate, 1},
		{"arrive", c.Arrive, 0},
		{"concurrency", c.Concurrency, 1},
		{"repeat", c.Repeat, 1},
		{"waiting", c.Waiting, 0},
	} {
		if flag.value < flag.from {
			errs = append(errs, fmt.Errorf("--%s %d: want %d or more", flag.name, flag.value, flag.from))
		}
	}
	return s, errors.Join(errs...)
}

// Run measures the systems in turns and prints a row for each.
func (c *backlogCommand) Run(b *bench) error {
	s, err := c.spec()
	if err != nil {
		return err
	}
	systems, err := pick(c.Against)
	if err != nil {
		return err
	}
	rows, err := b.backlog(s, systems, c.Repeat)
	if err != nil {
		return err
	}
	return printRows(b, c.JSON, backlogColumns, rows)
}

// backlogRow is the result of one system with one backlog. What does not apply is null.
type backlogRow struct {
	Case          string   `json:"case"`
	System        string   `json:"system"`
	Jobs          int      `json:"jobs"`
	Done          int      `json:"done"`
	Rate          int      `json:"rate_per_s"`
	Capacity      int      `json:"capacity"`
	LimitUsed     *float64 `json:"limit_used"`
	Denials       *float64 `json:"denials_per_job"`
	Over          *int     `json:"over"`
	BusiestWindow *int     `json:"busiest_window"`
	CPU           float64  `json:"redis_cpu_ms_per_job"` // from its enqueue to its end
	EnqueueCPU    float64  `json:"redis_cpu_ms_enqueue"` // of that, unless jobs arrive while it runs
	Commands      float64  `json:"redis_commands_per_job"`
	LatenessP50   *float64 `json:"lateness_ms_p50"`
	LatenessP99   *float64 `json:"lateness_ms_p99"`
	WaitingBytes  *int64   `json:"bytes_per_waiting_job"`
	Elapsed       float64  `json:"elapsed_s"`
	Ideal         *float64 `json:"ideal_s"`
	InTime        *float64 `json:"in_time,omitempty"` // see spec.inTime
	Inversions    *int     `json:"inversions,omitempty"`
}

var backlogColumns = []column[backlogRow]{
	{"case", func(r backlogRow) string { return r.Case }},
	{"system", func(r backlogRow) string { return r.System }},
	{"done", func(r backlogRow) string { return display.Number(r.Done) }},
	{"limit used", func(r backlogRow) string { return percent(r.LimitUsed) }},
	{"denials/job", func(r backlogRow) string { return number(r.Denials, 3) }},
	{"over", func(r backlogRow) string { return number(r.Over, 0) }},
	{"busiest 1 s", func(r backlogRow) string { return number(r.BusiestWindow, 0) }},
	{"CPU ms/job", func(r backlogRow) string { return number(&r.CPU, 3) }},
	{"of it enqueue", func(r backlogRow) string { return number(&r.EnqueueCPU, 3) }},
	{"commands/job", func(r backlogRow) string { return number(&r.Commands, 1) }},
	{"late p50 ms", func(r backlogRow) string { return number(r.LatenessP50, 1) }},
	{"late p99 ms", func(r backlogRow) string { return number(r.LatenessP99, 1) }},
	{"bytes/waiting", func(r backlogRow) string { return number(r.WaitingBytes, 0) }},
	{"elapsed s", func(r backlogRow) string { return number(&r.Elapsed, 2) }},
	{"ideal s", func(r backlogRow) string { return number(r.Ideal, 2) }},
	{"in time", func(r backlogRow) string { return percent(r.InTime) }},
	{"inversions", func(r backlogRow) string { return number(r.Inversions, 0) }},
}

// backlog runs the systems in turns, so that other load affects all of them, and returns the
// medians of each.
func (b *bench) backlog(s spec, systems []system, repeat int) ([]backlogRow, error) {
	runs := make([][]backlogRow, len(systems))
	for turn := range repeat {
		for i, system := range systems {
			out, err := system.run(b, s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", system.name, err)
			}
			row := newBacklogRow(system, s, out)
			runs[i] = append(runs[i], row)
			b.note("%s: %s, run %d of %d: %.1f s, %s of the limit used, %s denials/job, Redis %.3f ms/job",
				s, system.name, turn+1, repeat, row.Elapsed, percent(row.LimitUsed), number(row.Denials, 3), row.CPU)
		}
	}
	rows := make([]backlogRow, len(systems))
	for i, system := range systems {
		rows[i] = summary(runs[i])
		if system.waiting == nil || s.Waiting == 0 {
			continue
		}
		bytes, err := system.waiting(b, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", system.name, err)
		}
		rows[i].WaitingBytes = &bytes
	}
	return rows, nil
}

// summary returns the run with the median time, with other noisy figures at their own medians, and
// violations at their worst.
func summary(runs []backlogRow) backlogRow {
	slices.SortStableFunc(runs, func(x, y backlogRow) int { return cmp.Compare(x.Elapsed, y.Elapsed) })
	row := runs[len(runs)/2]
	figures := func(of func(backlogRow) *float64) (figures []float64) {
		for _, r := range runs {
			figures = append(figures, *of(r))
		}
		return figures
	}
	row.CPU = median(figures(func(r backlogRow) *float64 { return &r.CPU }))
	row.EnqueueCPU = median(figures(func(r backlogRow) *float64 { return &r.EnqueueCPU }))
	row.Commands = median(figures(func(r backlogRow) *float64 { return &r.Commands }))
	if row.LatenessP50 != nil {
		row.LatenessP50 = new(median(figures(func(r backlogRow) *float64 { return r.LatenessP50 })))
		row.LatenessP99 = new(median(figures(func(r backlogRow) *float64 { return r.LatenessP99 })))
	}
	if row.InTime != nil {
		row.InTime = new(median(figures(func(r backlogRow) *float64 { return r.InTime })))
	}
	for _, r := range runs {
		row.Done = min(row.Done, r.Done)
		if row.Over != nil {
			row.Over, row.BusiestWindow = new(max(*row.Over, *r.Over)), new(max(*row.BusiestWindow, *r.BusiestWindow))
		}
	}
	return row
}

func newBacklogRow(system system, s spec, out outcome) backlogRow {
	done := max(1, len(out.starts))
	row := backlogRow{
		Case: s.String(), System: system.name, Jobs: s.Jobs, Done: len(out.starts), Rate: s.Rate, Capacity: s.burst(),
		CPU:        float64(out.added.cpu+out.spent.cpu) / float64(time.Millisecond) / float64(done),
		EnqueueCPU: float64(out.added.cpu) / float64(time.Millisecond) / float64(done),
		Commands:   float64(out.added.commands+out.spent.commands) / float64(done),
		Elapsed:    elapsed(out).Seconds(),
	}
	ideal := s.ideal().Seconds()
	row.Ideal = &ideal
	row.LimitUsed = new(ideal / row.Elapsed * float64(len(out.starts)) / float64(s.Jobs))
	if system.name != "bullmq" { // it denies no jobs
		row.Denials = new(float64(out.denials) / float64(done))
	}
	over, busiest := judge(s, out.starts)
	row.Over, row.BusiestWindow = &over, &busiest
	late := quantilesMS(out.late, 50, 99)
	row.LatenessP50, row.LatenessP99 = &late[0], &late[1]
	if s.Hosts > 0 && s.Arrive == 0 {
		row.InTime = new(s.inTime(out.begin, out.starts))
	}
	if s.Arrive > 0 {
		row.Inversions = new(inversions(out.starts))
	}
	return row
}

// elapsed returns the time from the start of the worker to that of the last job.
func elapsed(out outcome) time.Duration {
	last := out.begin
	for _, st := range out.starts {
		last = max(last, st.started)
	}
	return time.Duration(max(1, last-out.begin)) * time.Microsecond
}

// judge returns the admissions beyond the guarantees of all limits, by the oracle, and the most
// admissions in any second.
func judge(s spec, starts []start) (over, busiest int) {
	all := make([]throttletest.Admission, len(starts))
	hosts := map[string][]throttletest.Admission{}
	for i, st := range starts {
		all[i] = throttletest.Admission{At: st.admitted, Cost: 1}
		if st.Host != "" {
			hosts[st.Host] = append(hosts[st.Host], all[i])
		}
	}
	over = throttletest.Over(s.limit(), all)
	for _, history := range hosts {
		over += throttletest.Over(s.hostLimit(), history)
	}
	return over, throttletest.Busiest(all, throttle.PerSecond(s.Rate).Per)
}
