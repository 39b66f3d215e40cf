package waitdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// DB is a Redis limiter for whose permits queued jobs can wait.
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
type DB struct {
	*throttle.Limiter
	rdb     redis.UniversalClient
	prefix  string
	app     string
	keys    []string // KEYS of every script: the prefix
	callers *script.Callers
}

// New returns the limiter with the lanes of its scope.
func New(limiter *throttle.Limiter) *DB {
	rdb, prefix, app := limiter.Internals().Scope()
	return &DB{limiter, rdb, prefix, app, []string{prefix}, script.NewCallers()}
}

// Scope returns where the keys are: the client, and what their names begin with.
func (db *DB) Scope() (rdb redis.UniversalClient, prefix string) { return db.rdb, db.prefix }

// Job is a queued job that asks for its permits. Only its JobID is required; its queue
// must not contain line breaks. What else it says may be other each time that it
// asks: its wait is counted from its first denial all the same.
type Job struct {
	throttle.JobID
	Priority Priority
	// MaxWait is how long the job may wait for its permits, counted from its
	// first denial; then the outcome is TooLate, and no sooner: those before it may
	// leave, and those that run may give permits back. The zero value means any time.
	MaxWait time.Duration
	// New is whether the job is new in asynq: it has not been put back since it was enqueued.
	// If its ID waits all the same, that is an earlier job, which was deleted: it is forgotten.
	New bool
	// Since is when the job came first, by the limiter's clock, of one that comes again after
	// an attempt: it stands among the others of its lane by that. MaxWait is counted from its
	// first denial since. The zero value means that it comes first now.
	QueuedAt time.Time
	// Waits is since when the job's wait lasts, by the limiter's clock, if it was allowed
	// after that and has not begun: MaxWait is counted from then on. It has a Since. The zero
	// value means that no wait lasts.
	WaitingSince time.Time
	// Deadline is when the job is of no use any more, by this process's clock.
	// The zero value means never.
	Deadline time.Time
	// Grant is how long permits are reserved for the job once it is called: as
	// long as it may take to come. Longer keeps permits idle for a job that never
	// comes; one that comes later than that may be denied again. The zero value
	// means DefaultGrant.
	Grant time.Duration
	// Ahead is how long before they exist the job may have permits of a funnel or a token
	// bucket once it is called. It must begin when they do: in the decision's BeginIn.
	// The zero value means that it begins at once.
	MaxAdvance time.Duration
	// Fair is the key, as of a tenant, for which the jobs of a queue take turns: while
	// several wait for the same permits, each has as many turns as the others, however many
	// jobs it has. Weight has it have more: with 3 three turns to one. Each turn counts by
	// the weight of its own job. Jobs without a key take turns as those of one key of
	// weight 1. A key has at most 200 bytes, a weight is at most 1000 and 0 means 1.
	Fair   string
	Weight int
}

// DefaultGrant is how long permits are reserved for a called job that does not
// say how long it takes to come.
const DefaultGrant = 250 * time.Millisecond

// validate refuses what would be another job, or lane, by its name: a queue ends where
// its line does.
func (j Job) validate() error {
	if strings.Contains(j.Queue, "\n") {
		return &throttle.FieldError{Field: "queue", Value: strconv.Quote(j.Queue), Want: "want a name without line breaks"}
	}
	return j.ValidateFair()
}

// Acquire takes a job's permits, or has the job wait in its lane. Then the
// outcome is Denied and RetryAfter is about when it would run; when its turn comes it
// is called, and must ask again. A waiting job that asks again keeps its place.
//
// Permits of concurrency limits are leases of the decision's Holder, which no
// later call of the same job shares, for the limiter's Extend and Free.
//
// A call that go-redis repeats, because its answer got lost, is not charged twice if
// that is within a minute.
// An error that wraps [throttle.ErrUnavailable] leaves open whether the job got a place in
// its lane, or its permits. To ask again, as a new call, is right in any case: it
// keeps a place that it got, and at worst permits are taken twice.
//
// Needs of the same meter are added up. A job that asks for other needs than it
// waits for begins anew in the lane of those, but has waited since it did.
func (db *DB) Acquire(ctx context.Context, job Job, needs ...throttle.Need) (throttle.Decision, error) {
	answer := db.AcquireAll(ctx, AcquireRequest{job, needs})[0]
	return answer.Decision, answer.Err
}

// An Ask is a job, and the permits that it asks for.
type AcquireRequest struct {
	Job
	Needs []throttle.Need
}

// An Answer is the decision about one job, or why there is none.
type AcquireResult struct {
	throttle.Decision
	Err error
}

// AcquireAll is Acquire for each of some jobs, as if they had asked one after the other:
// who comes first is served first. It takes a round trip or two for up to 64 of them.
// There is an answer for each, in their order. Each is another job.
func (db *DB) AcquireAll(ctx context.Context, asks ...AcquireRequest) []AcquireResult {
	answers := make([]AcquireResult, len(asks))
	all := make([]*ask, 0, len(asks))
	for i, a := range asks {
		needs, err := throttle.Normalize(a.Needs...)
		if err = cmp.Or(err, a.validate()); err != nil {
			answers[i].Err = err
			continue
		}
		all = append(all, &ask{Job: a.Job, needs: needs, answer: &answers[i]})
	}
	for some := range slices.Chunk(all, mostAsks) {
		for few := range script.Batches(some, func(a *ask) int { return len(a.needs) }) {
			db.acquire(ctx, few)
		}
	}
	return answers
}

// mostAsks is how many ask in one script at most: Redis does nothing else meanwhile.
const mostAsks = 64

// ask is one job's call of AcquireAll.
type ask struct {
	Job
	needs  []throttle.Need // normalized
	answer *AcquireResult

	like    []any  // what it shares with others, as lua/lanes/acquire.lua takes it
	call    string // by which its leases are known
	reply   []any
	replied time.Time // when Redis did, by this process's clock
	err     error
}

// acquire has jobs ask the plain way who may, and the others in the long way. No job goes
// ahead of one that needs a meter of its own too and goes the long way.
func (db *DB) acquire(ctx context.Context, asks []*ask) {
	calls := make([][]throttle.Need, len(asks))
	for i, a := range asks {
		calls[i] = a.needs
	}
	var rest []*ask
	decisions, errs := db.Internals().TryFast(ctx, calls)
	for i, a := range asks {
		if errs[i] != nil || decisions[i].OK() {
			*a.answer = AcquireResult{decisions[i], errs[i]}
		} else {
			rest = append(rest, a)
		}
	}
	db.join(ctx, rest)
}

// join has jobs ask in the long way: those that must wait join their lanes.
func (db *DB) join(ctx context.Context, asks []*ask) {
	if len(asks) == 0 {
		return
	}
	for _, a := range asks {
		grant := a.Grant
		if grant <= 0 {
			grant = DefaultGrant
		}
		a.like = appendNeeds([]any{a.Queue, a.Priority.headStart(), a.maxWaitUS(), grant.Microseconds(), a.MaxAdvance.Microseconds(), a.sinceUS(), unixMicro(a.WaitingSince), fairqueue.FairnessLine(a.Fair, a.Weight), len(a.needs)}, a.needs)
	}
	db.sendAsks(ctx, asks)
	for _, a := range asks {
		a.answer.Decision, a.answer.Err = db.Internals().Decide(ctx, a.needs, func(ctx context.Context, try int) ([]any, string, error) {
			if try > 0 {
				db.sendAsks(ctx, []*ask{a})
			}
			return a.reply, a.Queue + "\n" + a.ID + "\n" + a.call, a.err
		})
		if a.answer.OK() {
			a.answer.TakenAt = a.replied.Add(a.answer.At.Add(a.answer.BeginIn).Sub(time.UnixMicro(a.reply[2].(int64))))
		}
	}
}

// sendAsks sends jobs' calls in one script.
func (db *DB) sendAsks(ctx context.Context, asks []*ask) {
	c := db.callers.Next()
	defer db.callers.Done(c)
	sent := new(script.Sent)
	args := []any{db.app, c.Name, c.Calls, sent}
	for _, group := range inGroups(asks) {
		const needs = 9 // where they begin
		like := group[0].like
		args = append(append(append(args, like[:needs]...), len(group)), like[needs:]...)
		for _, a := range group {
			args = append(args, a.ID, a.usefulUS())
		}
	}
	replies, err := db.run(ctx, acquireScript, args...).Slice()
	if len(asks) > 1 && script.IsDamage(err) {
		for _, a := range asks {
			db.sendAsks(ctx, []*ask{a})
		}
		return
	}
	var replied time.Time
	if err == nil {
		replied = db.callers.When(replies[0].([]any)[2].(int64), sent)
	}
	for i, a := range asks {
		if a.call, a.err = fmt.Sprintf("%s:%d.%d", c.Name, c.Calls, i+1), err; err == nil {
			a.reply, a.replied = replies[i].([]any), replied
		}
	}
}

// inGroups has those together that are alike and follow each other, which the script takes
// in fewer words.
func inGroups(asks []*ask) (groups [][]*ask) {
	from := 0
	for i := range asks {
		if i+1 == len(asks) || !slices.Equal(asks[i].like, asks[i+1].like) {
			groups, from = append(groups, asks[from:i+1]), i+1
		}
	}
	return groups
}

// maxWaitUS is MaxWait as the script takes it: -1 is any time.
func (j Job) maxWaitUS() int64 {
	if j.MaxWait <= 0 {
		return -1
	}
	return j.MaxWait.Microseconds()
}

// sinceUS is Since as the script takes it: 0 is now, and -1 that the job is new, too.
func (j Job) sinceUS() int64 {
	if j.New && j.QueuedAt.IsZero() {
		return -1
	}
	return unixMicro(j.QueuedAt)
}

// unixMicro is a moment as the scripts take it: 0 where there is none.
func unixMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// usefulUS is how long the job is of use from now, by this process's clock: only
// the length of time goes to Redis, whose clock may be another. -1 is for ever.
func (j Job) usefulUS() int64 {
	if j.Deadline.IsZero() {
		return -1
	}
	return max(0, time.Until(j.Deadline).Microseconds())
}

// Forget drops waiting or called jobs that will not come: deleted, archived or
// run by hand. One that waits anew before Redis hears of it is left alone. What was reserved for them goes to the next at once. It returns how
// many of them waited or were called. Of jobs that run it knows nothing: their
// leases are given back with Free.
func (db *DB) Forget(ctx context.Context, jobs ...throttle.JobID) (known int, err error) {
	if len(jobs) == 0 {
		return 0, nil
	}
	names := make([]string, len(jobs))
	for i, job := range jobs {
		names[i] = job.Queue + "\n" + job.ID
	}
	records, err := db.rdb.HMGet(ctx, db.prefix+"jobs", names...).Result()
	var args []any
	for i, record := range records {
		if text, waits := record.(string); waits {
			args = append(args, jobs[i].Queue, jobs[i].ID, waitOf(text))
		}
	}
	if len(args) > 0 {
		known, err = db.run(ctx, forgetScript, args...).Int()
	}
	return known, unavailable(err)
}

// waitOf is as much of a job's record as says which wait it is about: its ticket, and since when
// it waits. Of one that no script has written that is all.
func waitOf(record string) string {
	if lines := strings.SplitAfterN(record, "\n", 3); len(lines) == 3 {
		return lines[0] + lines[1]
	}
	return record
}

// appendNeeds are needs as the scripts take them: triples of limit, key and cost.
func appendNeeds(args []any, needs []throttle.Need) []any {
	for _, n := range needs {
		args = append(args, n.Limit, n.Key, n.Cost)
	}
	return args
}

// jobArgs are jobs as the scripts take them: pairs of queue and ID.
func jobArgs(jobs []throttle.JobID) []any {
	args := make([]any, 0, 2*len(jobs))
	for _, job := range jobs {
		args = append(args, job.Queue, job.ID)
	}
	return args
}

// run runs a script. go-redis sends its digest, and its text only to a Redis that
// does not have it.
func (db *DB) run(ctx context.Context, script *script.Script, args ...any) *redis.Cmd {
	return script.Run(ctx, db.rdb, db.keys, args...)
}

// unavailable marks an error of Redis or of the way there, once, as the limiter does.
func unavailable(err error) error {
	if err == nil || errors.Is(err, throttle.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", throttle.ErrUnavailable, err)
}
