package throttle

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// Internals returns the methods of a limiter in Redis that only other packages of this module use.
func (l *Limiter) Internals() internals { return internals{l.backend.(*shared)} }

type internals struct{ s *shared }

// Scope returns the limiter's client, the prefix of its keys, and its app.
func (i internals) Scope() (rdb redis.UniversalClient, prefix, app string) {
	return i.s.rdb, i.s.prefix, i.s.app
}

// fastResult is the result of one job. Decision counts if it is allowed. TakenAt is the earliest
// time at which the permits were taken, by this process's clock.
type fastResult struct {
	Decision Decision
	TakenAt  time.Time
	Err      error
}

// TryFast requests the permits of jobs by the fast path, in their order. The needs of each job are
// normalized. A job with neither an allowed Decision nor an Err must run the full script. No job
// takes permits of a meter that a job before it did not get. If go-redis repeats a script within a
// minute, because the reply was lost, the repeat takes nothing twice.
func (i internals) TryFast(ctx context.Context, jobs [][]Need) []fastResult {
	calls := make([]call, len(jobs))
	var fast []*call
	denied := map[meterKey]bool{} // meters of jobs that do not take the fast path
	for n, needs := range jobs {
		c := &calls[n]
		c.needs = needs
		if c.limits, c.err = i.s.fastLimits(ctx, needs); c.err != nil {
			continue
		}
		if c.limits == nil || slices.ContainsFunc(needs, func(n Need) bool { return denied[meterKey{n.Limit, n.Key}] }) {
			for _, n := range needs {
				denied[meterKey{n.Limit, n.Key}] = true
			}
			continue
		}
		fast = append(fast, c)
	}
	for batch := range script.Batches(fast, func(c *call) int { return len(c.needs) }) {
		caller, sent := i.s.callers.Next(), new(script.Sent)
		i.s.sendFast(ctx, batch, []any{caller.Name, caller.Calls, sent}, sent)
		i.s.callers.Done(caller)
	}
	results := make([]fastResult, len(jobs))
	for n, c := range calls {
		results[n] = fastResult{c.decision, c.takenAt, c.err}
	}
	return results
}

// Decide runs ask, which runs a script that replies as lua/limits/allow.lua does. It runs ask
// again, up to three times, after it has extended a calendar or defined lost limits. It returns the
// decision and the numbers of the reply.
func (i internals) Decide(
	ctx context.Context, needs []Need, ask func(ctx context.Context, try int) (reply []any, holder string, err error),
) (Decision, []int64, error) {
	return i.s.decide(ctx, needs, ask)
}

// Extended runs a script whose reply begins with the names of limits whose calendars must be
// extended, and the time. It extends the calendars, runs the script again, and returns the
// remaining reply.
func (i internals) Extended(ctx context.Context, run func() ([]any, error)) ([]any, error) {
	return i.s.extended(ctx, run)
}

// ExtendCalendars stores the edges of the windows around a time, for limits that follow a calendar.
func (i internals) ExtendCalendars(ctx context.Context, names []string, nowUS int64) error {
	return i.s.extendCalendars(ctx, names, nowUS)
}

// Key returns a limit, and how one key differs from it. It takes three round trips.
func (i internals) Key(ctx context.Context, limit, key string) (Limit, KeyState, error) {
	return i.s.key(ctx, limit, key)
}

// Parse returns the limit of a definition in Redis, and reports whether the definition is complete.
func (i internals) Parse(name string, fields map[string]string) (l Limit, complete bool) {
	return parseDefinition(name, fields)
}

// Note writes a changelog entry about a schedule, a queue or jobs, with the context's actor.
// Methods that change a limit write their own entries.
func (i internals) Note(ctx context.Context, c Change) error {
	args := []any{c.What, script.Actor(ctx)}
	if c.Schedule != "" {
		args = append(args, "schedule", c.Schedule)
	}
	switch {
	case c.Jobs == 0 && c.Job.Queue != "":
		args = append(args, "queue", c.Job.Queue)
	case c.Jobs > 0:
		const maxID = 200 // bytes
		args = append(args, "jobs", c.Jobs, "queue", c.Job.Queue, "job", c.Job.ID[:min(len(c.Job.ID), maxID)])
	}
	return unavailable(i.s.run(ctx, noteScript, args...).Err())
}

// BlockFor blocks meters for a time by Redis's clock. It never shortens a block, so if processes
// receive different times from an upstream, the longest counts. It ignores limits that do not
// exist, and the costs of the needs.
func (i internals) BlockFor(ctx context.Context, d time.Duration, needs ...Need) error {
	if _, err := normalize(needs); err != nil {
		return err
	}
	return unavailable(i.s.run(ctx, blockForScript, appendMeters([]any{min(d, maxFill).Microseconds()}, needs)...).Err())
}
