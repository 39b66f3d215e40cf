package throttle

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/lua"
)

// Lanes is a Redis limiter for whose permits queued jobs can wait.
//
// A lane is the FIFO of one queue's jobs that need the same meters. A job that
// asks and finds no permits joins its lane; lanes that share a meter take turns
// there, and a job whose turn has come is called: its permits are reserved until
// it comes and asks again. While anybody waits at a meter newcomers take nothing
// there, so nobody overtakes.
//
// So a job is denied once, however long the backlog, and not each time that a
// permit exists which another one takes. Each step takes O(log n) of Redis's time.
//
// Somebody must call the jobs. Most callers want package scheduler, which has
// asynq's jobs ask, gives the lanes their turns and calls the jobs back. Lanes are
// safe for concurrent use.
type Lanes struct {
	*Redis
}

// NewLanes returns the limiter with the lanes of its scope.
func NewLanes(limiter *Redis) *Lanes { return &Lanes{limiter} }

// JobID is who a job is: the same ID in two queues is two jobs.
type JobID struct{ Queue, ID string }

// validate refuses what would be another job, or lane, by its name: a queue ends where
// its line does.
func (j JobID) validate() error {
	if strings.Contains(j.Queue, "\n") {
		return fieldError("queue", j.Queue, "want a name without line breaks")
	}
	return nil
}

// Job is a queued job that asks for its permits. Only its JobID is required; its queue
// must not contain line breaks. What else it says may be other each time that it
// asks: its wait is counted from its first denial all the same.
type Job struct {
	JobID
	Priority Priority
	// MaxWait is how long the job may wait for its permits, counted from its
	// first denial; then the outcome is TooLate, and no sooner: those before it may
	// leave, and those that run may give permits back. The zero value means any time.
	MaxWait time.Duration
	// Deadline is when the job is of no use any more, by this process's clock.
	// The zero value means never.
	Deadline time.Time
	// Grant is how long permits are reserved for the job once it is called: as
	// long as it may take to come. Longer keeps permits idle for a job that never
	// comes; one that comes later than that may be denied again. The zero value
	// means DefaultGrant.
	Grant time.Duration
}

// DefaultGrant is how long permits are reserved for a called job that does not
// say how long it takes to come.
const DefaultGrant = 250 * time.Millisecond

// Acquire takes a job's permits, or has the job wait in its lane. Then the
// outcome is Denied and RetryAfter is when it would run; when its turn comes it
// is called, and must ask again. A waiting job that asks again keeps its place.
//
// Permits of concurrency limits are leases of the decision's Holder, which no
// later call of the same job shares, for the limiter's Extend and Free.
//
// A call that go-redis repeats, because its answer got lost, is not charged twice if
// that is within a minute.
// An error that wraps [ErrUnavailable] leaves open whether the job got a place in
// its lane, or its permits. To ask again, as a new call, is right in any case: it
// keeps a place that it got, and at worst permits are taken twice.
//
// Needs of the same meter are added up. A job that asks for other needs than it
// waits for begins anew in the lane of those, but has waited since it did.
func (l *Lanes) Acquire(ctx context.Context, job Job, needs ...Need) (Decision, error) {
	needs, err := normalize(withCosts(needs))
	if err != nil {
		return Decision{}, err
	}
	if err := job.validate(); err != nil {
		return Decision{}, err
	}
	if job.Grant <= 0 {
		job.Grant = DefaultGrant
	}
	if d, ok, err := l.takePlainly(ctx, needs, true); ok && d.OK() || err != nil {
		return d, err
	}
	like := appendNeeds([]any{job.Queue, job.Priority.headStart(), job.maxWaitUS(), job.Grant.Microseconds(), len(needs)}, needs)
	return l.decide(ctx, needs, func(ctx context.Context) ([]any, string, error) {
		a := &ask{like: like, id: job.ID, usefulUS: job.usefulUS()}
		if err := l.asks.Do(ctx, a); err != nil {
			return nil, "", err
		}
		return a.reply, job.Queue + "\n" + job.ID + "\n" + a.call, a.err
	})
}

// ask is a call of Acquire that goes together with others.
type ask struct {
	like     []any // what it shares with others, as lua/acquire.lua takes it
	id       string
	usefulUS int64

	call  string // by which its leases are known
	reply []any
	err   error
}

// sendAsks sends jobs' calls in one script, those that are alike as a group.
func (r *Redis) sendAsks(ctx context.Context, asks []*ask) {
	c := r.callers.Get().(*caller)
	defer r.callers.Put(c)
	c.calls++
	args := []any{r.app, c.name, c.calls, new(attempt)}
	var sent []*ask
	for group := range groups(asks) {
		const needs = 5 // where they begin
		like := group[0].like
		args = append(append(append(args, like[:needs]...), len(group)), like[needs:]...)
		for _, a := range group {
			args = append(args, a.id, a.usefulUS)
		}
		sent = append(sent, group...)
	}
	replies, err := r.run(ctx, lua.Acquire, args...).Slice()
	for i, a := range sent {
		if a.call, a.err = fmt.Sprintf("%s:%d.%d", c.name, c.calls, i+1), err; err == nil {
			a.reply = replies[i].([]any)
		}
	}
}

// groups yields those that are alike, in the order of the first of each.
func groups(asks []*ask) iter.Seq[[]*ask] {
	return func(yield func([]*ask) bool) {
		for len(asks) > 0 {
			var like, rest []*ask
			for _, a := range asks {
				if slices.Equal(a.like, asks[0].like) {
					like = append(like, a)
				} else {
					rest = append(rest, a)
				}
			}
			if !yield(like) {
				return
			}
			asks = rest
		}
	}
}

// maxWaitUS is MaxWait as the script takes it: -1 is any time.
func (j Job) maxWaitUS() int64 {
	if j.MaxWait <= 0 {
		return -1
	}
	return j.MaxWait.Microseconds()
}

// usefulUS is how long the job is of use from now, by this process's clock: only
// the length of time goes to Redis, whose clock may be another. -1 is for ever.
func (j Job) usefulUS() int64 {
	if j.Deadline.IsZero() {
		return -1
	}
	return max(0, time.Until(j.Deadline).Microseconds())
}

// attempt counts how often a call is written to Redis: go-redis does so anew, without a
// word, when the answer got lost, and when Redis did not have the script's text.
type attempt int

// MarshalBinary is how go-redis writes it.
func (a *attempt) MarshalBinary() ([]byte, error) {
	*a++
	return strconv.AppendInt(nil, int64(*a), 10), nil
}

// caller sends one script at a time. Redis remembers the number of its last one in which
// a job was allowed, for a minute, so one that the client repeats, because
// the answer got lost, charges nobody twice. One key for each caller and not for
// each call: callers are pooled, so there are about as many as calls at once.
type caller struct {
	name  string
	calls uint64
}

// Forget drops waiting or called jobs that will not come: deleted, archived or
// run by hand. What was reserved for them goes to the next at once. It returns how
// many of them waited or were called. Of jobs that run it knows nothing: their
// leases are given back with Free.
func (l *Lanes) Forget(ctx context.Context, jobs ...JobID) (known int, err error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	known, err = l.run(ctx, lua.Forget, jobArgs(jobs)...).Int()
	return known, unavailable(err)
}

// jobArgs are jobs as the scripts take them: pairs of queue and ID.
func jobArgs(jobs []JobID) []any {
	args := make([]any, 0, 2*len(jobs))
	for _, job := range jobs {
		args = append(args, job.Queue, job.ID)
	}
	return args
}

// WaitsFor reports whether a job that waits would wait as it does if it asked for these
// needs. It is for package scheduler.
func WaitsFor(r turns.Record, needs ...Need) bool {
	needs, err := normalize(withCosts(needs))
	if err != nil {
		return false
	}
	lane, costs := []string{r.Queue}, []string(nil)
	for _, n := range needs {
		lane, costs = append(lane, n.Limit+"|"+n.Key), append(costs, strconv.Itoa(n.Cost))
	}
	return r.Lane == strings.Join(lane, "\n") && r.Costs == strings.Join(costs, ",")
}

// Turns is what package scheduler gives the lanes their turns with. Other callers
// have no use for it.
func (l *Lanes) Turns() *turns.Store {
	return turns.NewStore(l.rdb, l.prefix, l.extendCalendars)
}
