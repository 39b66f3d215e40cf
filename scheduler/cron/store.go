package cron

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/lua"
)

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
	now, err := parseTime(reply[0])
	if err != nil {
		return nil, time.Time{}, err
	}
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

// parseTime reads the microseconds that a script gives the time in.
func parseTime(reply any) (time.Time, error) {
	micros, err := strconv.ParseInt(fmt.Sprint(reply), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("time of Redis: %w", err)
	}
	return time.UnixMicro(micros), nil
}
