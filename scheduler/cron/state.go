package cron

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/script"
)

// A state is what all replicas know of an entry: a hash in Redis, with the
// fields below in snake case. Moments are Unix seconds there, absent when zero.
type state struct {
	last    time.Time // all ticks up to here are done
	spec    string    // zone and cron line that ran last; empty after removal
	paused  time.Time // since when; ticks up to it still count
	tick    time.Time // the last tick, and what came of it
	outcome string
	job     jobRef // of the last tick that has one
	extra   jobRef // the last that Trigger enqueued

	enqueued, skipped, failed int64

	err error     // why the state cannot be read, if so
	now time.Time // Redis's time when it was read
}

// A jobRef is where a job is. The zero value is none.
type jobRef struct{ id, queue string }

// newState reads a hash as HGETALL gives it.
func newState(reply any) (s state) {
	pairs, _ := reply.([]any)
	hash := make(map[string]string, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		hash[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
	}
	number := func(field string) int64 {
		text := hash[field]
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil && text != "" {
			s.err = fmt.Errorf("field %s is %q, want a whole number", field, text)
		}
		return n
	}
	moment := func(field string) (t time.Time) {
		if n := number(field); n != 0 {
			t = time.Unix(n, 0)
		}
		return t
	}
	s.last, s.paused, s.tick = moment("last"), moment("paused"), moment("tick")
	s.spec, s.outcome = hash["spec"], hash["outcome"]
	s.job, s.extra = jobRef{hash["job"], hash["job_queue"]}, jobRef{hash["extra"], hash["extra_queue"]}
	s.enqueued, s.skipped, s.failed = number("enqueued"), number("skipped"), number("failed")
	return s
}

// unixText is a moment as the state holds it: Unix seconds, empty when zero.
func unixText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.Unix(), 10)
}

func (r *Runner) key(name string) string { return script.Prefix(r.scope) + "cron:" + name }

// read gives the states of entries and Redis's time, in one round trip. A state
// that cannot be read has its error in it, and holds up no other.
func (r *Runner) read(ctx context.Context, names ...string) ([]state, time.Time, error) {
	args := make([]any, len(names))
	for i, name := range names {
		args[i] = name
	}
	reply, err := cronReadScript.Run(ctx, r.rdb, []string{script.Prefix(r.scope)}, args...).Slice()
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading schedules from Redis: %w", err)
	}
	micros, err := strconv.ParseInt(fmt.Sprint(reply[0]), 10, 64)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("time of Redis: %w", err)
	}
	now := time.UnixMicro(micros)
	states := make([]state, len(names))
	for i, name := range names {
		states[i] = newState(reply[i+1])
		states[i].now = now
		if err := states[i].err; err != nil {
			states[i].err = fmt.Errorf("key %s: %w", r.key(name), err)
		}
	}
	return states, now, nil
}

// move moves an entry's state on to last, unless it is there or further already, and
// reports whether it did. An outcome says that last was a tick, and what became of it.
func (r *Runner) move(ctx context.Context, name string, last time.Time, spec, outcome string, job jobRef) (bool, error) {
	moved, err := cronMoveScript.Run(ctx, r.rdb, []string{script.Prefix(r.scope)},
		name, unixText(last), spec, outcome, job.id, job.queue).Bool()
	if err != nil {
		return false, fmt.Errorf("schedule %s: moving its state on: %w", name, err)
	}
	return moved, nil
}
