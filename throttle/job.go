package throttle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
)

// Priority orders the jobs of one lane.
type Priority int

// The priorities. A job goes before those of the next lower priority that came
// up to HeadStart jobs earlier, and no further: so a Low job is overtaken by at
// most 2·HeadStart jobs that came after it.
const (
	Normal Priority = iota
	High
	Low
)

// HeadStart is how many tickets one step of priority is worth.
const HeadStart = 1000

var priorities = []string{Normal: "normal", High: "high", Low: "low"}

// String is the priority in lower case.
func (p Priority) String() string {
	if p < 0 || int(p) >= len(priorities) {
		return fmt.Sprintf("priority(%d)", int(p))
	}
	return priorities[p]
}

// MarshalText writes the priority as String does.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads normal, high or low.
func (p *Priority) UnmarshalText(text []byte) error {
	i, err := choose("priority", text, priorities)
	if err == nil {
		*p = Priority(i)
	}
	return err
}

func (p Priority) headStart() int {
	switch p {
	case High:
		return -HeadStart
	case Low:
		return HeadStart
	}
	return 0
}

// Job is a queued job that asks for its permits.
type Job struct {
	ID       string
	Queue    string
	Priority Priority
	// MaxWait is how long the job may wait for its permits; when it would have
	// to wait longer the outcome is TooLate. The zero value means any time.
	MaxWait time.Duration
}

// Acquire takes a job's permits, or puts the job in its lane: the FIFO of jobs
// that need the same meters. Then the outcome is Denied, RetryAfter is when it
// would run, and Pump names the job when its permits exist; it must then ask
// again. A waiting job that asks again keeps its place. Held permits of
// concurrency limits are leases of the job's ID, for Extend and Free.
func (r *Redis) Acquire(ctx context.Context, job Job, needs ...Need) (Decision, error) {
	needs, err := normalize(withCosts(needs))
	if err != nil {
		return Decision{}, err
	}
	patience := int64(-1)
	if job.MaxWait > 0 {
		patience = job.MaxWait.Microseconds()
	}
	if strings.Contains(job.Queue, "\n") || strings.Contains(job.ID, "\n") {
		return Decision{}, errors.New("job: want an ID and a queue without line breaks")
	}
	c := r.callers.Get().(*caller)
	defer r.callers.Put(c)
	c.calls++
	args := []any{job.ID, job.Queue, r.app, c.name, c.calls, job.Priority.headStart(), patience}
	return r.decide(ctx, lua.Acquire, appendNeeds(args, needs), needs, job.ID)
}

// caller makes one Acquire at a time. Redis remembers the number of its last
// call that was allowed, so a call that the client repeats, because the answer
// got lost, is not charged twice.
type caller struct {
	name  string
	calls uint64
}

// Called is a job that Pump calls back: its permits are kept for it.
type Called struct {
	Queue, ID string
	// In is how long it takes until the permits exist. The job must not ask
	// for them sooner.
	In time.Duration
}

// PumpLease is how long a process that pumps keeps others from it after each
// call: if it dies, another takes over after that time.
const PumpLease = 1500 * time.Millisecond

// pumpSteps bounds the work of one call, and with it how long it can hold up
// others: about 2 ms.
const pumpSteps = 100

// Pump calls waiting jobs back, exactly as many as permits exist for, now or
// within the time that ahead says, and says how long until it is worth calling
// again: negative where nothing is due. One process works at a time; all others
// are told active = false. A called job's permits are kept for it for the time
// that grant says, from when they exist. Wakes tells of work that comes up
// earlier than said.
func (r *Redis) Pump(ctx context.Context, process string, grant, ahead time.Duration) (called []Called, next time.Duration, active bool, err error) {
	reply, err := r.run(ctx, lua.Pump, process, PumpLease.Milliseconds(), grant.Microseconds(), ahead.Microseconds(), pumpSteps).Slice()
	if err != nil {
		return nil, 0, false, unavailable(err)
	}
	wait := time.Duration(reply[1].(int64)) * time.Microsecond
	if reply[0].(int64) == 0 {
		return nil, wait, false, nil
	}
	if stale := strings.Fields(reply[2].(string)); len(stale) > 0 {
		now, err := r.rdb.Time(ctx).Result()
		if err != nil {
			return nil, 0, true, unavailable(err)
		}
		if err := r.extendCalendars(ctx, stale, now.UnixMicro()); err != nil {
			return nil, 0, true, err
		}
		wait = 0
	}
	for i := 3; i < len(reply); i += 3 {
		in := time.Duration(reply[i+2].(int64)) * time.Microsecond
		called = append(called, Called{reply[i].(string), reply[i+1].(string), max(0, in)})
	}
	return called, wait, true, nil
}

// StopPump gives the pump's lease back, so that another process need not wait
// for its end.
func (r *Redis) StopPump(ctx context.Context, process string) error {
	lease := r.prefix + "pump"
	holder, err := r.rdb.Get(ctx, lease).Result()
	if errors.Is(err, redis.Nil) || (err == nil && holder != process) {
		return nil
	}
	if err == nil {
		err = r.rdb.Del(ctx, lease).Err()
	}
	return unavailable(err)
}

// Wakes subscribes to what comes up sooner than the pump knew. Each message is
// how long until then, in microseconds; the caller closes the subscription.
func (r *Redis) Wakes(ctx context.Context) *redis.PubSub {
	return r.rdb.Subscribe(ctx, r.prefix+"wake")
}

// Forget drops waiting or called jobs that will not come: deleted, archived or
// run by hand. What was kept for them goes to the next at once.
func (r *Redis) Forget(ctx context.Context, jobs ...string) error {
	if len(jobs) == 0 {
		return nil
	}
	args := make([]any, len(jobs))
	for i, id := range jobs {
		args[i] = id
	}
	return unavailable(r.run(ctx, lua.Forget, args...).Err())
}
