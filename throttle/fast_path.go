package throttle

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/internal/script"
)

// The fast path is a short script, lua/limits/fast_path.lua, which decides most calls: those whose
// limits are funnels or token buckets with a rate and a capacity and nothing else, while no job
// waits for permits. The script does not read the definitions of the limits. This process has a
// copy of them, and the script only checks that the copy is still valid. The script decides with a
// few comparisons, and replies with the state of each meter. From that state the meters in Go
// compute the numbers of the Decision.

// fastLimit is this process's copy of a limit.
type fastLimit struct {
	name    string
	summary string       // as lua/limits/include/summary.lua writes it
	rate    string       // "n period_us": the end of a meter's stored state
	limit   *meter.Limit // nil if the fast path cannot decide calls of this limit
	skip    int          // remaining number of calls that do not try the fast path
}

// skippedCalls is the number of calls that do not try the fast path after it could not decide a
// call of the limit. Each try costs a round trip.
const skippedCalls = 64

// parseFastLimit reads a limit's summary: its kind, n, period in microseconds and capacity. A fifth
// word means that the definition has more, such as a pause or overrides.
func parseFastLimit(name, summary string) *fastLimit {
	words := strings.Fields(summary)
	f := &fastLimit{name: name, summary: summary, skip: skippedCalls}
	if len(words) != 4 || words[0] != string(Funnel) && words[0] != string(TokenBucket) {
		return f
	}
	n, period, capacity := number(words[1]), number(words[2]), number(words[3])
	if min(n, period, capacity) < 1 {
		return f // corrupt data
	}
	if us, _ := meter.Span(capacity, n, period); us < meter.MaxTime/2 { // the script does not cap a TAT at MaxTime
		f.skip, f.rate = 0, words[1]+" "+words[2]
		f.limit = &meter.Limit{Kind: words[0], N: int(n), Per: microseconds(period), Capacity: int(capacity)}
	}
	return f
}

// call is a call of Allow, or a job's request for permits.
type call struct {
	needs    []Need
	decision Decision
	takenAt  time.Time // earliest time at which a job's permits were taken, by this process's clock
	err      error
	decided  bool // by the fast path; if false, the fast path has taken nothing for the call

	limits []*fastLimit // of needs; nil if the fast path cannot decide the call
	meters []int        // index of each need's meter in the fastBatch

	holder string // of the call's leases; set by the full script
	reply  []any  // of the full script
}

// fastLimits returns the limits of needs, or nil if the fast path cannot decide a call with these
// needs. It reads missing copies from Redis, in one round trip.
func (s *shared) fastLimits(ctx context.Context, needs []Need) ([]*fastLimit, error) {
	var missing []string
	limits := make([]*fastLimit, len(needs))
	s.mu.Lock()
	for i, need := range needs {
		f := s.fast[need.Limit]
		if limits[i] = f; f == nil {
			missing = append(missing, need.Limit)
		} else if f.skip > 0 {
			if f.skip--; f.skip == 0 {
				delete(s.fast, need.Limit)
			}
			limits = nil
			break
		} else if need.Cost == 0 || need.Cost > f.limit.Capacity {
			limits = nil
			break
		}
	}
	s.mu.Unlock()
	if limits == nil || missing == nil {
		return limits, nil
	}
	summaries, err := s.rdb.HMGet(ctx, s.prefix+"summaries", missing...).Result()
	if script.IsCorrupt(err) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	s.mu.Lock()
	for i, name := range missing {
		summary, _ := summaries[i].(string)
		s.fast[name] = parseFastLimit(name, summary)
	}
	s.mu.Unlock()
	return s.fastLimits(ctx, needs)
}

// fastResult is the result of one job. Decision counts if it is allowed. TakenAt is the earliest
// time at which the permits were taken, by this process's clock.
type fastResult struct {
	Decision Decision
	TakenAt  time.Time
	Err      error
}

// TryFast requests the permits of jobs by the fast path, in their order. The needs of each job are
// normalized. A job with neither an allowed Decision nor an Err must run the full script. After a
// job that is not allowed, later jobs cannot take permits of the same meters. If go-redis repeats a
// script within a minute, because the reply was lost, the repeat takes nothing twice.
func (s *shared) TryFast(ctx context.Context, jobs [][]Need) []fastResult {
	calls := make([]call, len(jobs))
	var fast []*call
	denied := map[meterKey]bool{} // meters of jobs that do not take the fast path
	for n, needs := range jobs {
		c := &calls[n]
		c.needs = needs
		if c.limits, c.err = s.fastLimits(ctx, needs); c.err != nil {
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
		caller, sent := s.callers.Next(), new(script.Sent)
		s.sendFast(ctx, batch, []any{caller.Name, caller.Calls, sent}, sent)
		s.callers.Done(caller)
	}
	results := make([]fastResult, len(jobs))
	for n, c := range calls {
		results[n] = fastResult{c.decision, c.takenAt, c.err}
	}
	return results
}

// fastBatch is the calls of one script, in their order.
type fastBatch struct {
	keys   []string     // of the script: the prefix, then the key of each meter
	limits []*fastLimit // the limit of each meter
	calls  []*call
}

// sendFast sends calls in one script, and decides the calls that the script could decide. The
// arguments in sender name the caller and the script, so that Redis recognizes a repeat. If a limit
// changed between two calls, they have different copies of it. Then sendFast leaves out the later
// call.
func (s *shared) sendFast(ctx context.Context, calls []*call, sender []any, sent *script.Sent) {
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
	reply, err := fastPathScript.Run(ctx, s.rdb, b.keys, b.args(sender)...).Text()
	if err != nil && !script.IsCorrupt(err) { // after corrupt data each call runs the full script
		for _, c := range calls {
			c.err = unavailable(err)
		}
		return
	}
	if reply != "" {
		b.decide(reply, sent, s.callers)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range calls {
		for _, need := range c.needs {
			if f := s.fast[need.Limit]; f != nil && !c.decided {
				f.skip = skippedCalls
			}
		}
	}
}

// args returns the arguments of the script. If equal calls follow each other and need all meters of
// the batch, they share one group of arguments.
func (b *fastBatch) args(sender []any) []any {
	args := append(make([]any, 0, len(sender)+3*len(b.limits)+5*len(b.calls)), sender...)
	for _, f := range b.limits {
		args = append(args, f.name)
	}
	for _, f := range b.limits {
		args = append(args, f.summary)
	}
	for _, f := range b.limits {
		args = append(args, f.rate)
	}
	for i, equal := 0, 0; i < len(b.calls); i += equal {
		c := b.calls[i]
		equal = 1
		for i+equal < len(b.calls) && slices.Equal(c.needs, b.calls[i+equal].needs) {
			equal++
		}
		all, head, times := len(c.meters) == len(b.limits) && slices.IsSorted(c.meters), any(""), 1
		switch {
		case !all:
			head, times = len(c.meters), equal
		case equal > 1:
			head = -equal
		}
		for range times {
			args = append(args, head)
			for j, need := range c.needs {
				if !all {
					args = append(args, c.meters[j]+1)
				}
				limit := c.limits[j].limit
				n, period := int64(limit.N), limit.PeriodUS()
				aheadUS, ahead := meter.Span(int64(limit.Capacity-need.Cost), n, period)
				costUS, cost := meter.Span(int64(need.Cost), n, period)
				fractions := ""
				if ahead > 0 || cost > 0 {
					fractions = strconv.FormatInt(ahead, 10) + " " + strconv.FormatInt(cost, 10)
				}
				args = append(args, aheadUS, costUS, fractions)
			}
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
	meters := make([]meter.Meter, len(b.limits)) // each decided call changes them
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
			c.decision, c.decided = denial(claims)
			continue
		}
		c.decision, c.takenAt, c.decided = takeAll(claims), takenAt, true
		if verdicts[i] == '=' { // the marks are unknown, so Settle gives nothing back
			c.decision.At = time.UnixMicro(takenUS)
			clear(c.decision.marks)
		}
	}
}
