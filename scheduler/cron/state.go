package cron

import (
	"fmt"
	"strconv"
	"time"
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

// parseState reads a hash. Its numbers have to be written as ours are: a move
// compares texts, so it would never succeed on a state that is not ours.
func parseState(reply any) (s state, err error) {
	pairs, _ := reply.([]any)
	fields := make(map[string]string, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		fields[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
	}
	// To a move, a field that is absent and an empty text are the same.
	number := func(field string) int64 {
		if fields[field] == "" {
			return 0
		}
		n, wrong := strconv.ParseInt(fields[field], 10, 64)
		if wrong != nil || strconv.FormatInt(n, 10) != fields[field] {
			err = fmt.Errorf("field %s is %q, want a plain whole number", field, fields[field])
		}
		return n
	}
	moment := func(field string) time.Time {
		if fields[field] == "" {
			return time.Time{}
		}
		return time.Unix(number(field), 0)
	}
	s = state{
		last: moment("last"), spec: fields["spec"], paused: moment("paused"),
		intent: moment("intent"), intentAt: moment("intent_at"),
		tick: moment("tick"), outcome: fields["outcome"],
		job:      jobRef{fields["job"], fields["job_queue"]},
		extra:    jobRef{fields["extra"], fields["extra_queue"]},
		enqueued: number("enqueued"), skipped: number("skipped"), failed: number("failed"),
	}
	return s, err
}

// changes lists each field that differs, and its value in to. A move writes no
// others, so it leaves alone what Pause and Trigger write meanwhile.
func changes(from, to state) (changed []any) {
	set := func(field, before, after string) {
		if before != after {
			changed = append(changed, field, after)
		}
	}
	set("last", unixText(from.last), unixText(to.last))
	set("spec", from.spec, to.spec)
	set("paused", unixText(from.paused), unixText(to.paused))
	set("intent", unixText(from.intent), unixText(to.intent))
	set("intent_at", unixText(from.intentAt), unixText(to.intentAt))
	set("tick", unixText(from.tick), unixText(to.tick))
	set("outcome", from.outcome, to.outcome)
	set("job", from.job.id, to.job.id)
	set("job_queue", from.job.queue, to.job.queue)
	set("enqueued", fmt.Sprint(from.enqueued), fmt.Sprint(to.enqueued))
	set("skipped", fmt.Sprint(from.skipped), fmt.Sprint(to.skipped))
	set("failed", fmt.Sprint(from.failed), fmt.Sprint(to.failed))
	return changed
}

// unixText is a moment as the state holds it: Unix seconds, empty when zero.
func unixText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.Unix(), 10)
}
