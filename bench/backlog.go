package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle/throttletest"
)

type backlogCommand struct {
	Spec    spec     `embed:""`
	Against []string `placeholder:"SYSTEM" help:"Systems to run beside headgate: wiki (the pattern of asynq's wiki with redis_rate and short polls), bullmq (needs Node.js)."`
	Repeat  int      `default:"1" help:"Runs of each system, in turns. The table has medians, and the worst run's admissions beyond the limit."`
	JSON    bool     `name:"json" help:"Print one JSON array."`
}

// Run measures the systems in turns and prints a row for each.
func (c *backlogCommand) Run(b *bench) error {
	s := c.Spec
	var errs []error
	flags := map[string]struct{ value, from int }{
		"jobs": {s.Jobs, 2}, "rate": {s.Rate, 1}, "capacity": {s.Capacity, 1},
		"hosts": {s.Hosts, 0}, "host-rate": {s.HostRate, 1}, "arrive": {s.Arrive, 0}, "concurrency": {s.Concurrency, 1},
		"repeat": {c.Repeat, 1}, "waiting": {s.Waiting, 0},
	}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if flag := flags[name]; flag.value < flag.from {
			errs = append(errs, fmt.Errorf("--%s %d: want %d or more", name, flag.value, flag.from))
		}
	}
	systems, err := pick(c.Against)
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	rows, err := b.backlog(s, systems, c.Repeat)
	if err != nil {
		return err
	}
	return printRows(b, c.JSON, rows)
}

// backlogRow is the result of one system with one backlog. What does not apply is null.
type backlogRow struct {
	Case         string   `json:"case" table:"case"`
	System       string   `json:"system" table:"system"`
	Done         int      `json:"done" table:"done,0"`
	LimitUsed    float64  `json:"limit_used" table:"limit used,%"`
	Denials      *float64 `json:"denials_per_job" table:"denials/job,3"`
	Over         int      `json:"over" table:"over,0"`
	CPU          float64  `json:"redis_cpu_ms_per_job" table:"CPU ms/job,3"`    // of Redis, from the job's enqueue to its end
	EnqueueCPU   float64  `json:"redis_cpu_ms_enqueue" table:"of it enqueue,3"` // the part of CPU; about 0 if jobs arrive during the run
	Commands     float64  `json:"redis_commands_per_job" table:"commands/job,1"`
	LatenessP50  float64  `json:"lateness_ms_p50" table:"late p50 ms,1"`
	LatenessP99  float64  `json:"lateness_ms_p99" table:"late p99 ms,1"`
	WaitingBytes *int64   `json:"bytes_per_waiting_job" table:"bytes/waiting,0"`
	Elapsed      float64  `json:"elapsed_s" table:"elapsed s,2"`
	Ideal        float64  `json:"ideal_s" table:"ideal s,2"`
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
			b.note("%s: %s, run %d of %d: %.1f s, %s of the limit used, Redis %.3f ms/job",
				s, system.name, turn+1, repeat, row.Elapsed, percent(row.LimitUsed), row.CPU)
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

// summary returns the run with the median time, in which medians replace the other noisy figures,
// and the worst values replace Done and Over.
func summary(runs []backlogRow) backlogRow {
	slices.SortStableFunc(runs, func(x, y backlogRow) int { return cmp.Compare(x.Elapsed, y.Elapsed) })
	row := runs[len(runs)/2]
	for _, figure := range []func(*backlogRow) *float64{
		func(r *backlogRow) *float64 { return &r.CPU }, func(r *backlogRow) *float64 { return &r.EnqueueCPU },
		func(r *backlogRow) *float64 { return &r.Commands }, func(r *backlogRow) *float64 { return &r.LatenessP50 },
		func(r *backlogRow) *float64 { return &r.LatenessP99 },
	} {
		var figures []float64
		for i := range runs {
			figures = append(figures, *figure(&runs[i]))
		}
		*figure(&row) = median(figures)
	}
	for _, r := range runs {
		row.Done, row.Over = min(row.Done, r.Done), max(row.Over, r.Over)
	}
	return row
}

func newBacklogRow(system system, s spec, out outcome) backlogRow {
	done := float64(max(1, len(out.starts)))
	perJob := func(cpu time.Duration) float64 { return cpu.Seconds() * 1000 / done }
	row := backlogRow{
		Case: s.String(), System: system.name, Done: len(out.starts), Over: over(s, out.starts),
		CPU: perJob(out.added.cpu + out.spent.cpu), EnqueueCPU: perJob(out.added.cpu),
		Commands:    float64(out.added.commands+out.spent.commands) / done,
		LatenessP50: quantileMS(out.late, 0.5), LatenessP99: quantileMS(out.late, 0.99),
		Elapsed: elapsed(out).Seconds(), Ideal: s.ideal().Seconds(),
	}
	row.LimitUsed = row.Ideal / row.Elapsed * float64(len(out.starts)) / float64(s.Jobs)
	if system.name != "bullmq" { // BullMQ denies no jobs
		row.Denials = new(float64(out.denials) / done)
	}
	return row
}

// elapsed returns the time from the start of the worker to the start of the last job.
func elapsed(out outcome) time.Duration {
	last := out.begin
	for _, st := range out.starts {
		last = max(last, st.started)
	}
	return time.Duration(max(1, last-out.begin)) * time.Microsecond
}

// over returns the number of admissions beyond the limits' guarantees, as throttletest counts them.
func over(s spec, starts []start) int {
	all := make([]throttletest.Admission, len(starts))
	hosts := map[string][]throttletest.Admission{}
	for i, st := range starts {
		all[i] = throttletest.Admission{At: st.admitted, Cost: 1}
		if st.Host != "" {
			hosts[st.Host] = append(hosts[st.Host], all[i])
		}
	}
	n := throttletest.Over(s.limit(), all)
	for _, history := range hosts {
		n += throttletest.Over(s.hostLimit(), history)
	}
	return n
}
