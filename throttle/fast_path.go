package throttle

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/internal/script"
)

// The fast path is a short script, lua/limits/fast_path.lua, that decides most calls. It decides a
// call if all its limits are funnels or token buckets with only a rate and a capacity, and if no
// job waits for permits. The script replies with the state of each meter. From this state, the
// meters in Go compute the numbers of the Decision.

// fastLimit is this process's copy of a limit.
type fastLimit struct {
	name    string
	summary string       // as lua/limits/include/summary.lua writes it
	rate    string       // "n period_us", as at the end of a meter's state in Redis
	limit   *meter.Limit // nil if the fast path cannot decide calls of this limit
	skip    atomic.Int64 // remaining number of calls that do not try the fast path
}

// If the fast path could not decide a call of a limit, the next skippedCalls calls do not try it,
// because a try costs a round trip. The call after them reads the limit again.
const skippedCalls = 64

// parseFastLimit reads a limit's summary: the kind, n, the period in microseconds and the capacity.
// A fifth word means that the fast path cannot decide, for example because of a pause or overrides.
func parseFastLimit(name, summary string) *fastLimit {
	words := strings.Fields(summary)
	f := &fastLimit{name: name, summary: summary}
	f.skip.Store(skippedCalls)
	if len(words) != 4 || words[0] != string(Funnel) && words[0] != string(TokenBucket) {
		return f
	}
	n, period, capacity := number(words[1]), number(words[2]), number(words[3])
	if min(n, period, capacity) < 1 {
		return f // corrupt data
	}
	if us, _ := meter.Span(capacity, n, period); us < meter.MaxTime/2 { // the script does not cap a TAT at MaxTime
		f.skip.Store(0)
		f.rate = words[1] + " " + words[2]
		f.limit = &meter.Limit{Kind: words[0], N: int(n), Per: microseconds(period), Capacity: int(capacity)}
	}
	return f
}

// fastLimits returns the limits of needs, or nil if the fast path cannot decide a call with these
// needs. It reads missing copies from Redis.
func (s *shared) fastLimits(ctx context.Context, needs []Need) ([]*fastLimit, error) {
	limits := make([]*fastLimit, len(needs))
	for i, need := range needs {
		copied, ok := s.fast.Load(need.Limit)
		if !ok {
			summary, err := s.rdb.HGet(ctx, s.prefix+"summaries", need.Limit).Result()
			if err != nil && !errors.Is(err, redis.Nil) && !script.IsCorrupt(err) {
				return nil, unavailable(err)
			}
			copied = parseFastLimit(need.Limit, summary)
			s.fast.Store(need.Limit, copied)
		}
		f := copied.(*fastLimit)
		if skip := f.skip.Add(-1); skip >= 0 {
			if skip == 0 {
				s.fast.Delete(need.Limit)
			}
			return nil, nil
		}
		// f.limit is nil if another call has just deleted this copy.
		if f.limit == nil || need.Cost == 0 || need.Cost > f.limit.Capacity {
			return nil, nil
		}
		limits[i] = f
	}
	return limits, nil
}

// TryFast requests the permits of jobs by the fast path, in their order. The needs of each job are
// normalized. The caller must run the full script for a job with neither an allowed Decision nor an
// Err. After a job that is not allowed, the fast path takes no permits of that job's meters for
// later jobs. If the reply is lost and go-redis repeats the script within an hour, the repeat
// takes no permit twice.
func (s *shared) TryFast(ctx context.Context, jobs [][]Need) []*call {
	calls := make([]*call, len(jobs))
	for i, needs := range jobs {
		calls[i] = &call{needs: needs}
	}
	s.tryFast(ctx, calls, true)
	return calls
}

// tryFast decides calls by the fast path, in their order. It leaves out a call that shares a meter
// with an earlier call that the fast path cannot decide.
func (s *shared) tryFast(ctx context.Context, calls []*call, areJobs bool) {
	var fast []*call
	left := map[meterKey]bool{} // meters of the calls that are left out
	for _, c := range calls {
		if c.limits, c.Err = s.fastLimits(ctx, c.needs); c.Err != nil {
			continue
		}
		if c.limits != nil && (len(left) == 0 || !slices.ContainsFunc(c.needs, func(n Need) bool { return left[meterKey{n.Limit, n.Key}] })) {
			fast = append(fast, c)
			continue
		}
		for _, n := range c.needs {
			left[meterKey{n.Limit, n.Key}] = true
		}
	}
	for batch := range script.Batches(fast, func(c *call) int { return len(c.needs) }) {
		s.sendFast(ctx, batch, areJobs)
	}
}

// fastBatch is the calls of one script, in their order.
type fastBatch struct {
	keys   []string     // KEYS of the script: the prefix, then the Redis key of each meter
	limits []*fastLimit // the limit of each meter
	calls  []*call
}

// sendFast sends calls in one script, and decides the calls that the script could decide. For jobs,
// the caller's name and the number of its call let Redis recognize a repeat. If a limit has just
// changed, two calls can have different copies of it. sendFast then leaves out the later call.
func (s *shared) sendFast(ctx context.Context, calls []*call, areJobs bool) {
	b, indexes := &fastBatch{keys: []string{s.prefix}}, map[string]int{}
next:
	for _, c := range calls {
		for i, need := range c.needs {
			f := c.limits[i]
			key := s.prefix + "m:" + f.limit.Kind + ":" + need.Limit + "|" + need.Key
			index, found := indexes[key]
			if !found {
				index = len(b.limits)
				indexes[key], b.keys, b.limits = index, append(b.keys, key), append(b.limits, f)
			}
			if b.limits[index].summary != f.summary {
				continue next
			}
			c.meters = append(c.meters, index)
		}
		b.calls = append(b.calls, c)
	}
	args, sent := []any{"", 0, 1}, (*script.Sent)(nil)
	if areJobs {
		caller, done := s.callers.Next()
		defer done()
		sent = new(script.Sent)
		args = []any{caller.Name, caller.Calls, sent}
	}
	reply, err := fastPathScript.Run(ctx, s.rdb, b.keys, b.args(args)...).Text()
	if err != nil && !script.IsCorrupt(err) { // after corrupt data each call runs the full script
		for _, c := range calls {
			c.Err = unavailable(err)
		}
		return
	}
	if reply != "" {
		b.decide(reply, sent, s.callers)
	}
	for _, c := range calls {
		for _, f := range c.limits {
			if !c.decided {
				f.skip.Store(skippedCalls)
			}
		}
	}
}

// args returns the arguments of the script. The first three are those in sender: caller, number and
// attempt. Equal calls that follow each other share one group of arguments.
func (b *fastBatch) args(sender []any) []any {
	args := slices.Grow(sender, 3*len(b.limits)+6*len(b.calls))
	for _, f := range b.limits {
		args = append(args, f.name)
	}
	for _, f := range b.limits {
		args = append(args, f.summary)
	}
	for _, f := range b.limits {
		args = append(args, f.rate)
	}
	for calls := b.calls; len(calls) > 0; {
		c, equal := calls[0], 1
		for equal < len(calls) && slices.Equal(c.needs, calls[equal].needs) {
			equal++
		}
		calls = calls[equal:]
		args = append(args, equal, len(c.needs))
		for i, need := range c.needs {
			limit := c.limits[i].limit
			n, period := int64(limit.N), limit.PeriodUS()
			aheadUS, ahead := meter.Span(int64(limit.Capacity-need.Cost), n, period)
			costUS, cost := meter.Span(int64(need.Cost), n, period)
			fractions := ""
			if ahead > 0 || cost > 0 {
				fractions = strconv.FormatInt(ahead, 10) + " " + strconv.FormatInt(cost, 10)
			}
			args = append(args, c.meters[i]+1, aheadUS, costUS, fractions)
		}
	}
	return args
}

// decide reads the script's reply, and makes the decisions. The reply has the state of each meter
// before the calls, so the meters in Go compute the same numbers as the script did.
func (b *fastBatch) decide(reply string, sent *script.Sent, callers *script.Callers) {
	lines := strings.Split(reply, "\n")
	head := strings.Fields(lines[0])
	now, verdicts := number(head[0])*1e6+number(head[1]), head[2]
	takenUS := now
	if len(head) > 3 { // an earlier sending of this script took the permits
		takenUS = number(head[3])
	}
	var takenAt time.Time
	if sent != nil {
		takenAt = callers.When(now, sent).Add(-microseconds(now - takenUS))
	}
	meters := make([]meter.Meter, len(b.limits)) // each allowed call changes its meters
	for i, f := range b.limits {
		meters[i] = meter.Read(f.limit, []any{lines[1+i]})
	}
	for i, c := range b.calls {
		if i >= len(verdicts) || verdicts[i] == '?' {
			continue
		}
		claims := make([]claim, len(c.needs))
		for j, need := range c.needs {
			claims[j] = claim{Gate: meter.Gate{Meter: meters[c.meters[j]]}, need: need, limit: c.limits[j].limit, now: now}
		}
		if verdicts[i] == '-' {
			c.Decision, c.decided = denial(claims)
			continue
		}
		c.Decision, c.TakenAt, c.decided = takeAll(claims), takenAt, true
		if verdicts[i] == '=' { // the marks are unknown, so Settle gives nothing back
			c.Decision.At = time.UnixMicro(takenUS)
			clear(c.Decision.marks)
		}
	}
}
