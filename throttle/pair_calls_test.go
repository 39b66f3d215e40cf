package throttle_test

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// A call was allowed, and can be settled.
type call struct {
	need         throttle.Need
	redis, local throttle.Decision
	meter        string
	settled
}

// call asks both for permits of one to three meters.
func (p *pair) call(t *rapid.T) {
	var needs []throttle.Need
	for range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "needs") {
		need := throttle.Need{Limit: p.name(t), Key: p.key(t), Cost: 1}
		l := p.limitOf(need.Limit, need.Key)
		if rapid.IntRange(0, 2).Draw(t, "costs more") == 0 {
			need.Cost = rapid.IntRange(1, max(l.Capacity, l.Rate.N)+1).Draw(t, "cost")
		}
		needs = append(needs, need)
	}
	p.ask(t, needs)
}

// throttle asks both for permits of a limit that is given with the call, of other numbers
// each time, or looks.
func (p *pair) throttle(t *rapid.T) {
	key, burst := p.key(t), rapid.IntRange(0, 4).Draw(t, "burst")
	count := rapid.IntRange(1, 7).Draw(t, "count")
	period := rapid.SampledFrom([]time.Duration{time.Microsecond, 700 * time.Millisecond, time.Second, time.Minute, throttle.Day}).Draw(t, "period")
	quantity := rapid.IntRange(0, burst+2).Draw(t, "quantity")
	got, want := answers(t, p, func(l *throttle.Limiter) (throttle.Decision, error) {
		return l.Throttle(t.Context(), key, burst, count, period, quantity)
	})
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(throttle.Decision{}, throttle.KeyState{})); diff != "" {
		t.Fatalf("throttle: local (-) and redis (+) differ:\n%s", diff)
	}
}

type lastDenial struct {
	needs      []throttle.Need
	retryAfter time.Duration
}

func (p *pair) ask(t *rapid.T, needs []throttle.Need) throttle.Decision {
	got, want := answers(t, p, func(l *throttle.Limiter) (throttle.Decision, error) { return l.AllowAll(t.Context(), needs...) })
	p.same(t, got, want)
	switch got.Outcome {
	case throttle.Allowed:
		p.record(needs, got, want)
	case throttle.Denied:
		p.denied = &lastDenial{needs, got.RetryAfter}
	}
	return got
}

func (p *pair) same(t *rapid.T, redis, local throttle.Decision) {
	t.Helper()
	ignored := cmp.Options{cmpopts.IgnoreFields(throttle.Decision{}, "Holder"), cmpopts.IgnoreUnexported(throttle.Decision{}, throttle.KeyState{})}
	if diff := cmp.Diff(local, redis, ignored); diff != "" {
		t.Fatalf("local (-) and redis (+) differ:\n%s", diff)
	}
	if (redis.Holder == "") != (local.Holder == "") {
		t.Fatalf("holders: %q in process, %q on redis", local.Holder, redis.Holder)
	}
}

func (p *pair) record(needs []throttle.Need, redis, local throttle.Decision) {
	at := redis.At.UnixMicro()
	for i, n := range needs {
		// A meter that is named twice is recorded once.
		same := func(x throttle.Need) bool { return x.Limit == n.Limit && x.Key == n.Key }
		if slices.ContainsFunc(needs[:i], same) {
			continue
		}
		n.Cost = 0
		for _, x := range needs[i:] {
			if same(x) {
				n.Cost += x.Cost
			}
		}
		meter := n.Limit + "|" + n.Key
		a := throttletest.Admission{At: at, Cost: n.Cost}
		if l := p.limits[n.Limit]; l.Kind == throttle.Concurrency {
			a.Until = at + l.Lease.Microseconds()
			p.leases = append(p.leases, lease{n, redis.Holder, local.Holder, meter, len(p.histories[meter])})
		} else {
			p.calls = append(p.calls, &call{n, redis, local, meter, settled{n.Cost, []int{len(p.histories[meter])}}})
		}
		p.histories[meter] = append(p.histories[meter], a)
		p.counts(n.Limit, n.Key)
	}
	p.denied = nil
}

func (p *pair) look(t *rapid.T) {
	name, key := p.name(t), p.key(t)
	redis, local := answers(t, p, func(l *throttle.Limiter) (throttle.Decision, error) { return l.AllowN(t.Context(), name, key, 0) })
	p.same(t, redis, local)
}

// comeBack checks the RetryAfter of the last denial, if nothing has changed since.
func (p *pair) comeBack(t *rapid.T) {
	if p.denied == nil || p.behind > 0 {
		t.Skip("nothing was promised")
	}
	needs, retryAfter := p.denied.needs, p.denied.retryAfter
	p.advance(retryAfter - time.Microsecond)
	if d := p.ask(t, needs); d.Outcome != throttle.Denied || d.RetryAfter != time.Microsecond {
		t.Fatalf("a microsecond before retry-after: %s", d)
	}
	p.advance(time.Microsecond)
	if d := p.ask(t, needs); !d.OK() {
		t.Fatalf("at retry-after: %s", d)
	}
}

// settle settles the cost of a call, perhaps for the second time.
func (p *pair) settle(t *rapid.T) {
	if len(p.calls) == 0 {
		t.Skip("nothing to settle")
	}
	c := rapid.SampledFrom(p.calls).Draw(t, "call")
	cost := rapid.IntRange(0, 2*c.need.Cost+1).Draw(t, "true cost")
	if kind := p.limits[c.need.Limit].Kind; cost < c.cost && p.behind > 0 && (kind == throttle.Funnel || kind == throttle.TokenBucket) {
		t.Skip("it could give back as much as the rate makes in the step")
	}
	for _, x := range []struct {
		*throttle.Limiter
		throttle.Decision
	}{{p.redis.Limiter, c.redis}, {p.local.Limiter, c.local}} {
		if err := x.Settle(t.Context(), x.Decision, c.need.Limit, c.need.Key, cost); err != nil {
			t.Fatalf("%T: %v", x.Limiter, err)
		}
	}
	if cost > c.cost {
		p.counts(c.need.Limit, c.need.Key)
	}
	p.histories[c.meter] = c.settle(p.histories[c.meter], p.redis.now, cost)
	p.denied = nil
}

// settled has the entries of a call in the history of its meter: its admission, and what it was
// charged later above that.
type settled struct {
	cost    int
	entries []int
}

// settle changes the history to the actual cost of a call. A higher cost is a debt from now on. A
// lower cost is subtracted from the latest entries first.
func (c *settled) settle(history []throttletest.Admission, now time.Time, cost int) []throttletest.Admission {
	if cost > c.cost {
		c.entries = append(c.entries, len(history))
		debt := throttletest.Admission{At: now.UnixMicro(), Cost: cost - c.cost, Debt: true}
		for _, a := range history { // the clock may have stepped back
			debt.At = max(debt.At, a.At)
		}
		history = append(history, debt)
		c.cost = cost
	}
	for _, i := range slices.Backward(c.entries) {
		less := min(c.cost-cost, history[i].Cost)
		history[i].Cost, c.cost = history[i].Cost-less, c.cost-less
	}
	return history
}

// A lease is held permits of one meter, and where they stand in the history.
type lease struct {
	need         throttle.Need
	redis, local string // the holder's names
	meter        string
	index        int
}

func (p *pair) anyLease(t *rapid.T) (int, lease) {
	if len(p.leases) == 0 {
		t.Skip("nothing is held")
	}
	i := rapid.IntRange(0, len(p.leases)-1).Draw(t, "lease")
	return i, p.leases[i]
}

func (p *pair) extend(t *rapid.T) {
	if p.backwards {
		t.Skip("a lease that has ended could come back to life")
	}
	_, l := p.anyLease(t)
	redis, local := answers(t, p, func(x *throttle.Limiter) (time.Duration, error) {
		if x == p.redis.Limiter {
			return x.Extend(t.Context(), l.redis, l.need)
		}
		return x.Extend(t.Context(), l.local, l.need)
	})
	if redis != local {
		t.Fatalf("extended: %s in process, %s on redis", local, redis)
	}
	if redis > 0 {
		p.histories[l.meter][l.index].Until = p.redis.now.Add(redis).UnixMicro()
	}
	p.denied = nil
}

func (p *pair) free(t *rapid.T) {
	i, l := p.anyLease(t)
	if err := p.redis.Free(t.Context(), l.redis, l.need); err != nil {
		t.Fatalf("redis: %v", err)
	}
	if err := p.local.Free(t.Context(), l.local, l.need); err != nil {
		t.Fatalf("local: %v", err)
	}
	held := &p.histories[l.meter][l.index]
	held.Until = max(held.At, min(held.Until, p.redis.now.UnixMicro()))
	if p.backwards { // the clock may go back to when it was held
		held.Until = held.At
	}
	p.leases = append(p.leases[:i:i], p.leases[i+1:]...)
	p.denied = nil
}

func (p *pair) advance(d time.Duration) {
	p.redis.wait(d)
	p.local.wait(d)
}

func (p *pair) wait(t *rapid.T) {
	unit := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, throttle.Day}).Draw(t, "unit")
	p.denied = nil
	p.advance(time.Duration(rapid.IntRange(0, 100).Draw(t, "units")) * unit)
}

func (p *pair) setBack(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 20_000_000).Draw(t, "µs back")) * time.Microsecond
	if !p.backwards || p.behind+d >= time.Minute {
		t.Skip("not further back")
	}
	p.denied = nil
	p.behind += d
	p.advance(-d)
}

// counts notes that a meter counts something now. It was gone before where it had
// been as if never used for so long that Redis may have dropped it.
func (p *pair) counts(name, key string) {
	meter, now := name+"|"+key, p.redis.now
	l := p.limitOf(name, key)
	if last, ok := p.counted[meter]; ok && now.Sub(last) > l.Rate.Per+l.Margin+time.Minute {
		p.gone[meter] = true
	}
	p.counted[meter] = now
}
