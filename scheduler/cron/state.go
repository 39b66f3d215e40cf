package cron

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

var (
	cronAdvanceScript = script.New("cron/advance")
	cronReadScript    = script.New("cron/read")
)

// state is the state of an entry in Redis, which all replicas share. Times are Unix seconds; 0
// means that there is none. A job is "ID QUEUE", or empty if there is none.
type state struct {
	DoneUntil    int64  `redis:"last"`   // all ticks up to this time have been handled
	Spec         string `redis:"spec"`   // zone and cron line in use; empty if the entry is disabled or removed
	Paused       int64  `redis:"paused"` // start of the pause; ticks up to this time are still enqueued
	Tick         int64  `redis:"tick"`   // the last tick with an outcome
	Outcome      string `redis:"outcome"`
	Job          string `redis:"job"`   // job of the last tick that got one
	TriggeredJob string `redis:"extra"` // job of the last Trigger

	Enqueued int64 `redis:"enqueued"`
	Skipped  int64 `redis:"skipped"`
	Failed   int64 `redis:"failed"`

	err error // why the state could not be read, or nil
}

// moment returns the time of Unix seconds, or the zero time for 0.
func moment(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

func (r *Runner) key(name string) string { return script.Prefix(r.scope) + "cron:" + name }

// read returns the states of the named entries, in that order, and Redis's time, in one round trip.
// If one state is malformed, read sets the err of this state, and returns the others as usual.
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
	states := make([]state, len(names))
	for i, name := range names {
		hash := map[string]string{}
		pairs, _ := reply[i+1].([]any)
		for j := 0; j+1 < len(pairs); j += 2 {
			hash[fmt.Sprint(pairs[j])] = fmt.Sprint(pairs[j+1])
		}
		if err := redis.NewMapStringStringResult(hash, nil).Scan(&states[i]); err != nil {
			states[i].err = fmt.Errorf("key %s: %w", r.key(name), err)
		}
	}
	return states, time.UnixMicro(micros), nil
}

// advance records that all ticks of an entry up to doneUntil are done. If outcome is not empty,
// doneUntil is a tick with that outcome, and job is the tick's job or empty. An empty spec marks
// the entry as disabled or removed, and the recorded time stays as it is. advance reports whether it
// moved this time forward.
func (r *Runner) advance(ctx context.Context, name string, doneUntil time.Time, spec, outcome, job string) (moved bool, err error) {
	moved, err = cronAdvanceScript.Run(ctx, r.rdb, []string{script.Prefix(r.scope)}, name, doneUntil.Unix(), spec, outcome, job).Bool()
	if err != nil {
		return false, fmt.Errorf("schedule %s: advancing its last tick: %w", name, err)
	}
	return moved, nil
}
