package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

const (
	// every is how often what is new is written.
	every = time.Second
	// reach is how far back the stream goes.
	reach = 16 * time.Minute
	// maxWritten is how many limits, and how many tasks, a summary names, which bounds the
	// stream: some 9 KB a second of a process. The rest is under Other.
	maxWritten = 50
	// maxTotals is how many fields the totals have, but for those of Other: what
	// has no name of its own then is counted under Other.
	maxTotals = 5000
)

// Start begins to write each second what is new, and what waits where that is this
// process's to say. The function that it returns ends that, after what is left has been
// written; it may be called again.
func (r *Recorder) Start() (stop func()) {
	if r.off {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run writes until ctx ends, and then what is left.
func (r *Recorder) run(ctx context.Context) {
	second, look, alive := time.NewTicker(every), time.NewTimer(every), time.NewTicker(aliveEach)
	defer second.Stop()
	defer look.Stop()
	defer alive.Stop()
	r.sayAlive(ctx)
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			r.write(last)
			r.say(last, "")
			return
		case <-alive.C:
			r.sayAlive(ctx)
		case <-second.C:
			r.write(context.Background())
		case <-look.C:
			look.Reset(r.lookAround(ctx))
		}
	}
}

// write writes what is new, if anything is. What cannot be written is still new
// the next time.
func (r *Recorder) write(ctx context.Context) {
	s, now := r.news()
	if len(s.Limits) == 0 && len(s.Tasks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.send(ctx, s); err != nil {
		r.FailedWrites.Add(1)
		return
	}
	r.written = now
}

// news is what was counted since it was written last, and all that was counted so far.
func (r *Recorder) news() (s *Summary, now counted) {
	s = &Summary{Process: r.process, Limits: map[string]LimitSummary{}}
	now = counted{limits: map[string]LimitSummary{}, tasks: map[Task]TaskSummary{}}
	for _, c := range r.Limits() {
		d, was := c.Decisions, r.written.limits[c.Limit]
		is := LimitSummary{
			Allowed: d[throttle.Allowed], Denied: d[throttle.Denied],
			Rejected: d[throttle.Never] + d[throttle.NoLimit] + d[throttle.TooLate], Permits: c.Permits,
		}
		now.limits[c.Limit] = is
		if is == was {
			continue
		}
		is = LimitSummary{is.Allowed - was.Allowed, is.Denied - was.Denied, is.Rejected - was.Rejected, is.Permits - was.Permits, nil}
		if is.Denied > 0 && c.Limit != Other {
			is.Denial = c.denial
		}
		s.Limits[c.Limit] = is
	}
	for _, c := range r.Tasks() {
		is, was := TaskSummary{c.Task, c.Ends, c.Running}, r.written.tasks[c.Task]
		now.tasks[c.Task] = is
		for end, n := range was.Ends {
			is.Ends[end] -= n
		}
		if is.Ends != (Counts{}) || is.Running != was.Running {
			s.Tasks = append(s.Tasks, is)
		}
	}
	s.bound()
	return s, now
}

// bound leaves the busiest limits and tasks by name, and sums up the rest.
func (s *Summary) bound() {
	limits := slices.SortedFunc(maps.Keys(s.Limits), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Limits[b].sum(), s.Limits[a].sum()), cmp.Compare(a, b))
	})
	for _, name := range limits[min(maxWritten, len(limits)):] {
		if name != Other {
			s.Limits[Other] = s.Limits[Other].Add(s.Limits[name])
			delete(s.Limits, name)
		}
	}
	if len(s.Tasks) <= maxWritten {
		return
	}
	slices.SortFunc(s.Tasks, func(a, b TaskSummary) int {
		return cmp.Or(cmp.Compare(b.Ends.sum(), a.Ends.sum()), cmp.Compare(a.Queue+"\n"+a.Type, b.Queue+"\n"+b.Type))
	})
	rest := TaskSummary{Task: Task{Other, Other}}
	for _, t := range s.Tasks[maxWritten:] {
		rest.Running += t.Running
		for end, n := range t.Ends {
			rest.Ends[end] += n
		}
	}
	s.Tasks = append(s.Tasks[:maxWritten], rest)
}

func (r *Recorder) send(ctx context.Context, s *Summary) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	r.sent++
	args := []any{text, reach.Microseconds(), maxTotals, Other, r.process, r.sent}
	for _, t := range s.Tasks {
		for end, n := range t.Ends {
			if n > 0 {
				args = append(args, strings.Join([]string{t.Queue, t.Type, End(end).String()}, "\n"), n)
			}
		}
	}
	return recordScript.Run(ctx, r.rdb, []string{r.prefix}, args...).Err()
}

// Describe says what this process goes by from now on: its config. It may be called at any
// time.
func (r *Recorder) SetConfig(config string) { r.config.Store(&config) }

func (r *Recorder) sayAlive(ctx context.Context) {
	of := r.self
	of.Concurrency = r.Concurrency
	if config := r.config.Load(); config != nil {
		of.Config = *config
	}
	for _, t := range r.Tasks() {
		of.Running += t.Running
	}
	if text, err := json.Marshal(of); err == nil {
		r.say(ctx, string(text))
	}
}

// say writes that, or with an empty text that the process has ended.
func (r *Recorder) say(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := aliveScript.Run(ctx, r.rdb, []string{r.prefix}, r.process, text, aliveLife.Microseconds()).Err(); err != nil {
		r.FailedWrites.Add(1)
	}
}
