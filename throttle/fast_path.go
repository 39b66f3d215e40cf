package throttle

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/internal/script"
)

// The fast path is a short script that decides most calls: those whose limits are funnels or token
// buckets that have only a rate and a capacity, while no job waits for permits. This process caches
// such limits, so the script reads no definitions: it checks that the cached limits are still
// valid, and compares a few numbers. The header of lua/limits/fast_path.lua lists the arguments and
// the parts of the reply.

// fastLimits caches limits by name, as Redis described them last. It is safe for concurrent use.
type fastLimits struct {
	mu     sync.Mutex
	byName map[string]*fastLimit
}

// fastLimit is a limit in the cache.
type fastLimit struct {
	name    string
	summary string       // as lua/limits/include/summary.lua writes it
	rate    string       // "n period_us", as the state of a meter ends
	limit   *meter.Limit // nil if the fast path cannot decide calls of this limit
	skip    int          // number of the next calls that do not try the fast path
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

// find returns the cached limits of needs, or the names of limits that the cache lacks. It returns
// neither if the fast path cannot decide a call with these needs.
func (f *fastLimits) find(needs []Need) (limits []*fastLimit, missing []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, need := range needs {
		cached := f.byName[need.Limit]
		if cached == nil {
			missing = append(missing, need.Limit)
			continue
		}
		if cached.skip > 0 {
			if cached.skip--; cached.skip == 0 {
				delete(f.byName, need.Limit)
			}
			return nil, nil
		}
		if cached.limit == nil || need.Cost == 0 || need.Cost > cached.limit.Capacity {
			return nil, nil
		}
		limits = append(limits, cached)
	}
	return limits, missing
}

// call is a call of Allow, or a job's request for permits. If the fast path leaves the call
// undecided, it has taken no permits for it.
type call struct {
	needs    []Need
	decision Decision
	takenAt  time.Time // earliest time at which a job's permits were taken, by this process's clock
	err      error
	decided  bool

	limits []*fastLimit // of needs; nil if the fast path cannot decide the call
	meters []int        // index of each need's meter in the fastBatch

	holder string // of the call's leases; set by the full script
	reply  []any  // of the full script
}

// fastLimits returns the limits of needs, or nil if the fast path cannot decide a call with these
// needs. It reads limits that are not in the cache from Redis, in one round trip.
func (s *shared) fastLimits(ctx context.Context, needs []Need) ([]*fastLimit, error) {
	limits, missing := s.fast.find(needs)
	if len(missing) == 0 {
		return limits, nil
	}
	summaries, err := s.rdb.HMGet(ctx, s.prefix+"summaries", missing...).Result()
	if script.IsCorrupt(err) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	s.fast.mu.Lock()
	for i, name := range missing {
		summary, _ := summaries[i].(string)
		s.fast.byName[name] = parseFastLimit(name, summary)
	}
	s.fast.mu.Unlock()
	return s.fastLimits(ctx, needs)
}

// sendFast sends calls in one script, and decides the calls that the script could decide. The
// first three arguments name the sender and the script, so that Redis recognizes a repeat.
func (s *shared) sendFast(ctx context.Context, calls []*call, sender []any, sent *script.Sent) {
	b := newFastBatch(calls, s.prefix)
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
	s.fast.mu.Lock()
	defer s.fast.mu.Unlock()
	for _, c := range calls {
		if c.decided {
			continue
		}
		for _, need := range c.needs {
			if cached := s.fast.byName[need.Limit]; cached != nil {
				cached.skip = skippedCalls
			}
		}
	}
}

// fastBatch is the calls that one script decides, in their order.
type fastBatch struct {
	keys   []string     // of the script: the prefix, then the key of each meter
	limits []*fastLimit // the limit of each meter
	calls  []*call
}

// newFastBatch collects the meters that calls need. It leaves out a call if an earlier call has
// another version of the same limit, which changed in between.
func newFastBatch(calls []*call, prefix string) *fastBatch {
	b, indexes := &fastBatch{keys: []string{prefix}}, map[string]int{}
next:
	for _, c := range calls {
		for i, need := range c.needs {
			cached := c.limits[i]
			key := prefix + "m:" + cached.limit.Kind + ":" + need.Limit + "|" + need.Key
			index, found := indexes[key]
			if !found {
				index = len(b.limits)
				indexes[key], b.keys, b.limits = index, append(b.keys, key), append(b.limits, cached)
			}
			if b.limits[index].summary != cached.summary {
				continue next
			}
			c.meters = append(c.meters, index)
		}
		b.calls = append(b.calls, c)
	}
	return b
}

// args returns the arguments of the script. Equal calls that follow each other and need all meters
// share one group of arguments.
func (b *fastBatch) args(sender []any) []any {
	var names, summaries, rates []any
	for _, cached := range b.limits {
		names, summaries, rates = append(names, cached.name), append(summaries, cached.summary), append(rates, cached.rate)
	}
	args := slices.Concat(sender, names, summaries, rates)
	for i, equal := 0, 0; i < len(b.calls); i += equal {
		c := b.calls[i]
		for equal = 1; i+equal < len(b.calls) && slices.Equal(c.needs, b.calls[i+equal].needs); equal++ {
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
	for i, cached := range b.limits {
		meters[i] = meter.Read(cached.limit, []any{lines[1+i]})
	}
	for i, c := range b.calls {
		if i >= len(verdicts) || verdicts[i] == '?' {
			continue
		}
		claims := make([]claim, len(c.needs))
		for j, need := range c.needs {
			claims[j] = claim{Gate: meter.Gate{Meter: meters[c.meters[j]]}, need: need, limit: c.limits[j].limit, now: now}
		}
		c.decided = true
		if verdicts[i] == '-' {
			bind, at := binding(claims)
			c.decision = bind.denial(at)
			continue
		}
		c.decision, c.takenAt = takeAll(claims), takenAt
		if verdicts[i] == '=' { // other calls may have taken permits since then, so nothing can be given back
			c.decision.At = time.UnixMicro(takenUS)
			clear(c.decision.marks)
		}
	}
}
