package cron

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/lua"
)

// A state is what all replicas know of an entry: a hash in Redis, with the
// fields below in snake case. Moments are Unix seconds there, absent when
// zero. Only a move changes last and intent, so that a state whose last and
// intent are still the same is one that no replica has worked on.
//
// It holds no entry: what a tick enqueues is in the replicas' own programs, and of
// the cron line only what is needed to see that it has changed, and to do the ticks
// of the line before up to the change.
type state struct {
	last     time.Time // no tick up to here is to be enqueued any more
	spec     string    // zone and cron line that ran last; empty after removal
	paused   time.Time // since when; ticks up to it still count
	intent   time.Time // the tick that is being enqueued
	intentAt time.Time // since when
	tick     time.Time // the last tick, and what came of it
	outcome  string
	job      jobRef // of the last tick that has one
	extra    jobRef // the last that Trigger enqueued; no step of a tick writes it

	enqueued, skipped, failed int64
}

// A jobRef is where a job is. The zero value is none.
type jobRef struct{ id, queue string }

// A view is an entry's state as last seen.
type view struct {
	state
	err  error     // why the state cannot be read, if so
	now  time.Time // Redis's time when it was read
	seen time.Time // our own, just before it was read or last moved on
}

// fields are the parts of a state by their names in Redis.
func (s *state) fields() map[string]any {
	return map[string]any{
		"last": &s.last, "spec": &s.spec, "paused": &s.paused, "intent": &s.intent, "intent_at": &s.intentAt,
		"tick": &s.tick, "outcome": &s.outcome, "job": &s.job.id, "job_queue": &s.job.queue,
		"extra": &s.extra.id, "extra_queue": &s.extra.queue,
		"enqueued": &s.enqueued, "skipped": &s.skipped, "failed": &s.failed,
	}
}

// parseState reads a hash. Its numbers have to be written as ours are: a move
// compares texts, so it would never succeed on a state that is not ours.
func parseState(reply any) (s state, err error) {
	pairs, _ := reply.([]any)
	hash := make(map[string]string, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		hash[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
	}
	for name, field := range s.fields() {
		text := hash[name]
		if text == "" { // the same as absent to a move
			continue
		}
		number, _ := strconv.ParseInt(text, 10, 64)
		switch field := field.(type) {
		case *string:
			*field = text
		case *int64:
			*field = number
		case *time.Time:
			*field = time.Unix(number, 0)
		}
		if fieldText(field) != text {
			err = fmt.Errorf("field %s is %q, want a plain whole number", name, text)
		}
	}
	return s, err
}

// changes lists each field that differs, and its value in to. A move writes no
// others, so it leaves alone what Pause and Trigger write meanwhile.
func changes(from, to state) (changed []any) {
	before := from.fields()
	for name, field := range to.fields() {
		if text := fieldText(field); text != fieldText(before[name]) {
			changed = append(changed, name, text)
		}
	}
	return changed
}

func fieldText(field any) string {
	switch field := field.(type) {
	case *int64:
		return strconv.FormatInt(*field, 10)
	case *time.Time:
		return unixText(*field)
	}
	return *field.(*string)
}

// unixText is a moment as the state holds it: Unix seconds, empty when zero.
func unixText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.Unix(), 10)
}

// prefix is what the scope's keys begin with. Its braces keep them in one slot
// of a cluster.
func (r *Runner) prefix() string { return lua.Prefix(r.scope) }

func (r *Runner) key(name string) string { return r.prefix() + "cron:" + name }

// read gives the states of entries and Redis's time, in one round trip. A state
// that cannot be understood has its error in its view, and holds up no other.
func (r *Runner) read(ctx context.Context, names ...string) ([]view, time.Time, error) {
	args := make([]any, len(names))
	for i, name := range names {
		args[i] = name
	}
	// Before the round trip: a state must not be taken for fresher than it is.
	seen := time.Now()
	reply, err := lua.CronRead.Run(ctx, r.rdb, []string{r.prefix()}, args...).Slice()
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading schedules from Redis: %w", err)
	}
	micros, err := strconv.ParseInt(fmt.Sprint(reply[0]), 10, 64)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("time of Redis: %w", err)
	}
	now := time.UnixMicro(micros)
	views := make([]view, len(names))
	for i, name := range names {
		s, err := parseState(reply[i+1])
		if err != nil {
			err = fmt.Errorf("key %s: %w", r.key(name), err)
		}
		views[i] = view{state: s, err: err, now: now, seen: seen}
	}
	return views, now, nil
}

// refresh reads v again, after another replica was faster or time has passed.
func (r *Runner) refresh(ctx context.Context, name string, v *view) error {
	views, _, err := r.read(ctx, name)
	if err != nil {
		return err
	}
	*v = views[0]
	return v.err
}

// forgetAfter is how long the state of a removed entry is kept that is not paused.
const forgetAfter = 30 * 24 * time.Hour

// move replaces the state from by to, if nobody else has moved it meanwhile, and
// reports whether it did. All that a replica does to a state but Pause and Trigger
// is a move: it is what makes one of them win.
// A state without a spec is that of an entry which was removed: it is
// forgotten after a while unless it is paused, and any other move makes it stay.
func (r *Runner) move(ctx context.Context, name string, from, to state) (bool, error) {
	forget := 0
	if to.spec == "" {
		forget = int(forgetAfter / time.Second)
	}
	args := append([]any{name, unixText(from.last), unixText(from.intent), forget}, changes(from, to)...)
	moved, err := lua.CronMove.Run(ctx, r.rdb, []string{r.prefix()}, args...).Bool()
	if err != nil {
		return false, fmt.Errorf("schedule %s: moving its state on: %w", name, err)
	}
	return moved, nil
}
