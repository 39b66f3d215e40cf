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

// The fast path decides calls whose limits are funnels and token buckets with nothing beside their
// rate, while no job waits: the case of most calls. This process remembers such limits, and a short
// script only compares them with what Redis has, and a few numbers: see lua/limits/fast_path.lua.

// fastLimits are the limits as Redis described them last. They are safe for concurrent use.
type fastLimits struct {
	mu     sync.Mutex
	byName map[string]*fastLimit
}

// fastLimit is what is known of one limit.
type fastLimit struct {
	name    string
	summary string       // as lua/limits/include/summary.lua writes it
	rate    string       // n and period of the summary, as meters have them
	counts  *meter.Limit // nil if the limit is not for the fast path
	skip    int          // calls that do not try the fast path, since one could not be decided
}

// skippedCalls is for how many calls the fast path is not tried after it could not decide one,
// because each try costs a round trip.
const skippedCalls = 64

// parseFastLimit reads a limit's summary: kind, n, period in microseconds and capacity, and a mark
// if there is more.
func parseFastLimit(name, summary string) *fastLimit {
	words := strings.Fields(summary)
	f := &fastLimit{name: name, summary: summary, skip: skippedCalls}
	if len(words) != 4 || words[0] != string(Funnel) && words[0] != string(TokenBucket) {
		return f
	}
	n, period, capacity := number(words[1]), number(words[2]), number(words[3])
	if min(n, period, capacity) < 1 {
		return f // no script has written that
	}
	if us, _ := meter.Span(capacity, n, period); us < meter.Far/2 { // so that no TAT comes near it
		f.skip, f.rate = 0, words[1]+" "+words[2]
		f.counts = &meter.Limit{Kind: words[0], N: int(n), Per: microseconds(period), Capacity: int(capacity)}
	}
	return f
}

// find returns the limits of needs for the fast path, or the names of those that are not known yet.
// It returns neither if the call is not for the fast path.
func (f *fastLimits) find(needs []Need) (limits []*fastLimit, unknown []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, need := range needs {
		known := f.byName[need.Limit]
		if known == nil {
			unknown = append(unknown, need.Limit)
			continue
		}
		if known.skip > 0 {
			if known.skip--; known.skip == 0 {
				delete(f.byName, need.Limit)
			}
			return nil, nil
		}
		if known.counts == nil || need.Cost == 0 || need.Cost > known.counts.Capacity {
			return nil, nil
		}
		limits = append(limits, known)
	}
	return limits, unknown
}

// call is one call of Allow, or of a job. The fast path decides it, or leaves it undecided without
// having taken anything.
type call struct {
	needs    []Need
	decision Decision
	err      error
	decided  bool

	limits []*fastLimit
	meters []int // their places in the fast path's batch

	holder string // of its leases
	reply  []any  // of the whole script
}

// fastLimits returns the limits of needs if the call is for the fast path, else nil. If a limit is
// not known yet, that takes a round trip.
func (s *shared) fastLimits(ctx context.Context, needs []Need) ([]*fastLimit, error) {
	limits, unknown := s.fast.find(needs)
	if len(unknown) == 0 {
		return limits, nil
	}
	summaries, err := s.rdb.HMGet(ctx, s.prefix+"summaries", unknown...).Result()
	if script.IsDamage(err) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	s.fast.mu.Lock()
	for i, name := range unknown {
		summary, _ := summaries[i].(string)
		s.fast.byName[name] = parseFastLimit(name, summary)
	}
	s.fast.mu.Unlock()
	return s.fastLimits(ctx, needs)
}

// sendFast sends calls in one script, and decides those that it could answer. The stamp names the
// sender, and counts its scripts and how often this one was sent, so that a repeat is recognized.
func (s *shared) sendFast(ctx context.Context, calls []*call, stamp []any, sent *script.Sent) {
	b := newFastBatch(calls, s.prefix)
	reply, err := fastPathScript.Run(ctx, s.rdb, b.keys, b.args(stamp)...).Text()
	if err != nil && !script.IsDamage(err) { // damage: each asks otherwise
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
			if known := s.fast.byName[need.Limit]; known != nil {
				known.skip = skippedCalls
			}
		}
	}
}

// fastBatch is calls that one script decides, one after the other.
type fastBatch struct {
	keys   []string     // of the script: the prefix, and the meters
	limits []*fastLimit // of the meters
	calls  []*call
}

// newFastBatch leaves out calls that know a limit otherwise than a call before them.
func newFastBatch(calls []*call, prefix string) *fastBatch {
	b, places := &fastBatch{keys: []string{prefix}}, map[string]int{}
next:
	for _, c := range calls {
		for i, need := range c.needs {
			limit := c.limits[i]
			key := prefix + "m:" + limit.counts.Kind + ":" + need.Limit + "|" + need.Key
			place, known := places[key]
			if !known {
				place = len(b.limits)
				places[key], b.keys, b.limits = place, append(b.keys, key), append(b.limits, limit)
			}
			if b.limits[place].summary != limit.summary {
				continue next
			}
			c.meters = append(c.meters, place)
		}
		b.calls = append(b.calls, c)
	}
	return b
}

// args returns the arguments of the script.
func (b *fastBatch) args(stamp []any) []any {
	var names, summaries, rates []any
	for _, limit := range b.limits {
		names, summaries, rates = append(names, limit.name), append(summaries, limit.summary), append(rates, limit.rate)
	}
	args := slices.Concat(stamp, names, summaries, rates)
	for i, alike := 0, 0; i < len(b.calls); i += alike {
		c := b.calls[i]
		for alike = 1; i+alike < len(b.calls) && slices.Equal(c.needs, b.calls[i+alike].needs); alike++ {
		}
		all, head, times := len(c.meters) == len(b.limits) && slices.IsSorted(c.meters), any(""), 1
		switch {
		case !all:
			head, times = len(c.meters), alike
		case alike > 1:
			head = -alike
		}
		for range times {
			args = append(args, head)
			for j, need := range c.needs {
				if !all {
					args = append(args, c.meters[j]+1)
				}
				limit := c.limits[j].counts
				n, period := int64(limit.N), limit.PeriodUS()
				aheadUS, ahead := meter.Span(int64(limit.Capacity-need.Cost), n, period)
				costUS, part := meter.Span(int64(need.Cost), n, period)
				parts := ""
				if ahead > 0 || part > 0 {
					parts = strconv.FormatInt(ahead, 10) + " " + strconv.FormatInt(part, 10)
				}
				args = append(args, aheadUS, costUS, parts)
			}
		}
	}
	return args
}

// decide reads the script's reply, and decides the calls by the twins of the meters in Go, which
// the reply has the states of.
func (b *fastBatch) decide(reply string, sent *script.Sent, callers *script.Callers) {
	lines := strings.Split(reply, "\n")
	head := strings.Fields(lines[0])
	now, verdicts := number(head[0])*1e6+number(head[1]), head[2]
	taken := now // when the permits were taken that an earlier sending of the script had taken
	if len(head) > 3 {
		taken = number(head[3])
	}
	var takenAt time.Time
	if sent != nil {
		takenAt = callers.When(now, sent).Add(-microseconds(now - taken))
	}
	meters := make([]meter.Meter, len(b.limits)) // as the calls that were decided have left them
	for i, limit := range b.limits {
		meters[i] = meter.Read(limit.counts, []any{lines[1+i]})
	}
	for i, c := range b.calls {
		if i >= len(verdicts) || verdicts[i] == '?' {
			continue
		}
		claims := make([]claim, len(c.needs))
		for j, need := range c.needs {
			claims[j] = claim{Gate: meter.Gate{Meter: meters[c.meters[j]]}, need: need, limit: c.limits[j].counts, now: now}
		}
		c.decided = true
		if verdicts[i] == '-' {
			bind, at := binding(claims)
			c.decision = bind.denial(at)
			continue
		}
		c.decision = takeAll(claims)
		c.decision.TakenAt = takenAt
		if verdicts[i] == '=' { // what was taken since is not known
			c.decision.At = time.UnixMicro(taken)
			clear(c.decision.marks)
		}
	}
}
