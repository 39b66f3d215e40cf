package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/stats"
)

const (
	// A snapshot is used for minAge, or for readRest times the duration of its read if that is
	// longer.
	minAge   = time.Second
	readRest = 20
	// readTimeout is how long a request waits for the reads of a snapshot or a view. Then the page
	// says that it could not be read, and shows the last snapshot.
	readTimeout = redishealth.AnswerTimeout
	// slowRead is how long a request waits for a new snapshot if the last one is younger than
	// readTimeout.
	slowRead = time.Second
	// Charts show the last 15 minutes in steps of 10 seconds.
	chartStep  = 10 * time.Second
	chartSteps = 90
)

// errSlow means that Redis is not known to be down.
var errSlow = fmt.Errorf("this page could not be read in %s; jobs run", readTimeout)

// reader shares snapshots between all viewers. If a request finds the last snapshot too old, the
// reader reads a new one.
type reader struct {
	queues *inspect.Queues
	health *redishealth.Monitor

	mu      sync.Mutex // guards the fields below
	last    *snapshot
	readAt  time.Time     // when the last successful read ended, by this process's clock
	expires time.Time     // of last, by this process's clock
	reading chan struct{} // closed at the end of the current read; nil if there is none

	busy    chan struct{}                           // full while a read uses the fields below
	steps   map[int64]map[string]stats.LimitSummary // of the charts, by number of the step (see stepOf), and by limit
	lastIDs map[string]string                       // by scope, the ID of the last summary that was read
}

func newReader(queues *inspect.Queues, health *redishealth.Monitor) *reader {
	return &reader{
		queues: queues, health: health, last: &snapshot{Status: &inspect.Status{}, Now: time.Now()},
		busy: make(chan struct{}, 1), steps: map[int64]map[string]stats.LimitSummary{}, lastIDs: map[string]string{},
	}
}

// latest returns the last snapshot, or a new one if the last is too old. If the read of the new one
// is slow, latest returns the last snapshot, up to readTimeout old. After that, or if Redis cannot be
// read, it returns the last snapshot with Err set.
func (r *reader) latest(ctx context.Context) *snapshot {
	r.mu.Lock()
	last, isFresh := r.last, time.Since(r.readAt) < readTimeout
	if time.Now().Before(r.expires) {
		r.mu.Unlock()
		return last
	}
	if r.reading == nil {
		r.reading = make(chan struct{})
		go r.read(context.WithoutCancel(ctx), r.reading) // other viewers wait for this read, too
	}
	reading := r.reading
	r.mu.Unlock()
	ended := redishealth.Await(reading, slowRead)
	switch {
	case !ended && isFresh:
		return last
	case !ended && !redishealth.Await(reading, readTimeout-slowRead):
		s := new(*last)
		s.Err = r.cause(context.DeadlineExceeded)
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// read reads a snapshot, and closes ended.
func (r *reader) read(ctx context.Context, ended chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout) // no viewer waits for longer
	defer cancel()
	r.busy <- struct{}{}
	start, call := time.Now(), r.health.Begin()
	s, err := r.readAll(ctx)
	<-r.busy
	if err == nil || redishealth.ProblemOf(err) == redishealth.Unreachable {
		call.Note(ctx, err)
	} else {
		call.Note(ctx, nil) // Redis answers; the page needs fewer rights than a worker
	}
	if err != nil {
		err = r.cause(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	age := max(minAge, readRest*time.Since(start))
	if err != nil {
		s, age = new(*r.last), minAge
		s.Err = err
	}
	r.last = s
	if r.reading == ended { // not expired meanwhile
		r.reading, r.expires = nil, time.Now().Add(age)
		if err == nil {
			r.readAt = time.Now()
		}
	}
	close(ended)
}

// cause returns why Redis could not be read. If only time has passed, that is an outage that the
// Monitor knows of or finds within slowRead, or errSlow.
func (r *reader) cause(err error) error {
	if !redishealth.IsUnanswered(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), slowRead)
	defer cancel()
	if down := r.health.Check(ctx); redishealth.ProblemOf(down).IsTemporary() && down != nil {
		return down
	}
	return errSlow
}

// expire makes the next request read a new snapshot.
func (r *reader) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expires, r.readAt, r.reading = time.Time{}, time.Time{}, nil
}

func (r *reader) readAll(ctx context.Context) (*snapshot, error) {
	status, err := r.queues.Status(ctx, false)
	if err != nil {
		return nil, err
	}
	s := &snapshot{Status: status, Now: status.At.Local()}
	if s.Changes, err = r.queues.Changes(ctx, 500); err != nil {
		return nil, err
	}
	for _, in := range r.queues.Scopes() {
		if err := r.readSteps(ctx, in, status.At); err != nil {
			return nil, err
		}
	}
	for _, l := range status.Limits {
		row := limitRow{Limit: l, now: s.Now}
		row.chart, row.Sum = r.chart(l.Name, status.At)
		s.Limits = append(s.Limits, row)
	}
	slices.SortStableFunc(s.Limits, func(a, b limitRow) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Total, a.Total))
	})
	return s, nil
}

func stepOf(at time.Time) int64 { return at.UnixMilli() / chartStep.Milliseconds() }

// readSteps reads the new summaries of a scope. The first call reads the summaries of the last 15
// minutes.
func (r *reader) readSteps(ctx context.Context, in *inspect.Queues, now time.Time) error {
	summaries, err := in.Summaries(ctx, cmp.Or(r.lastIDs[in.Scope()], stats.StreamID(now.Add(-chartSteps*chartStep))))
	for _, s := range summaries {
		r.lastIDs[in.Scope()] = s.ID
		step := stepOf(s.At)
		if r.steps[step] == nil {
			r.steps[step] = map[string]stats.LimitSummary{}
		}
		for limit, l := range s.Limits {
			r.steps[step][limit] = r.steps[step][limit].Add(l)
		}
	}
	maps.DeleteFunc(r.steps, func(step int64, _ map[string]stats.LimitSummary) bool { return step <= stepOf(now)-chartSteps })
	return err
}

// chart returns the chart of a limit, and the sum of its steps and of the current step.
func (r *reader) chart(limit string, now time.Time) (c chart, sum stats.LimitSummary) {
	last := stepOf(now)
	first := last - chartSteps + 1
	c.From = first * int64(chartStep/time.Second)
	for i := first; i < last; i++ {
		step := r.steps[i][limit]
		c.Permits = append(c.Permits, float64(max(0, step.Permits))/chartStep.Seconds())
		c.Denials = append(c.Denials, float64(step.Denied)/chartStep.Seconds())
		sum = sum.Add(step)
	}
	return c, sum.Add(r.steps[last][limit])
}
