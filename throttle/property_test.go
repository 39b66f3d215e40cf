package throttle_test

import (
	stdcmp "cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestRedisDecidesAsLocal runs random calls on both, on mixed limits that
// change, with a clock that jumps. Every decision must be the same to the
// microsecond, every retry-after true, and every history within its limit.
func TestRedisDecidesAsLocal(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		rapid.Check(t, func(t *rapid.T) {
			s.restart(t)
			p := &pair{
				redis: s, local: localStage(), backwards: rapid.IntRange(0, 3).Draw(t, "clock goes backwards") == 0,
				limits: map[string]throttle.Limit{}, histories: map[string][]throttletest.Admission{}, keys: map[string]keyLimit{},
				counted: map[string]time.Time{}, gone: map[string]bool{},
			}
			for i := range rapid.IntRange(1, 4).Draw(t, "limits") {
				p.define(t, p.anyLimit(t, fmt.Sprintf("l%d", i)))
			}
			t.Repeat(map[string]func(*rapid.T){
				"call": p.call, "call again": p.call, "look": p.look, "come back": p.comeBack, "wait": p.wait, "set back": p.setBack,
				"redefine": p.redefine, "pause": p.pause, "block": p.block, "reset": p.reset, "extend": p.extend, "free": p.free,
				"settle": p.settle, "settle more": p.settle, "set key": p.setKey, "unset key": p.unsetKey,
			})
			p.judge(t)
		})
	})
}

// A pair is a limiter on Redis and one in process that are told the same.
type pair struct {
	redis, local *stage
	// backwards is whether the clock may be set back, by less than a minute in
	// all: so long do meters outlive what they count. No lease is extended then:
	// it would come back to life with its permit taken.
	backwards bool
	behind    time.Duration
	blocked   bool // whether a key ever was

	limits    map[string]throttle.Limit
	histories map[string][]throttletest.Admission // by limit, key; since the limit last changed
	keys      map[string]keyLimit                 // by limit, key: what was set for it
	counted   map[string]time.Time                // by limit, key: when the meter counted something last
	gone      map[string]bool                     // by limit, key: whether Redis may have dropped what it counted
	denied    *lastDenial
	leases    []lease
	calls     []call // that can be settled
}

// A call was allowed; it is that admission of its meter's history.
type call struct {
	need         throttle.Need
	redis, local throttle.Decision
	meter        string
	index        int
}

// settle says what a call has truly cost. The history counts that, and what it cost
// more as a debt from now on.
func (p *pair) settle(t *rapid.T) {
	if len(p.calls) == 0 || p.backwards {
		t.Skip("nothing to settle")
	}
	i := rapid.IntRange(0, len(p.calls)-1).Draw(t, "call")
	c := p.calls[i]
	p.calls = append(p.calls[:i:i], p.calls[i+1:]...)
	cost := rapid.IntRange(0, 2*c.need.Cost+1).Draw(t, "true cost")
	for _, x := range []struct {
		throttle.Limiter
		throttle.Decision
	}{{p.redis, c.redis}, {p.local, c.local}} {
		if err := x.Settle(t.Context(), x.Decision, c.need.Limit, c.need.Key, cost); err != nil {
			t.Fatalf("%T: %v", x.Limiter, err)
		}
	}
	a := &p.histories[c.meter][c.index]
	if cost > a.Cost {
		p.histories[c.meter] = append(p.histories[c.meter], throttletest.Admission{At: p.redis.now.UnixMicro(), Cost: cost - a.Cost, Debt: true})
		p.counts(c.need.Limit, c.need.Key)
	} else {
		a.Cost = cost
	}
	p.denied = nil
}

type lastDenial struct {
	needs      []throttle.Need
	retryAfter time.Duration
}

// A lease is held permits of one meter, and where they stand in the history.
type lease struct {
	need         throttle.Need
	redis, local string // the holder's names
	meter        string
	index        int
}

// A keyLimit is what a key of a limit goes by until it ends, if it does.
type keyLimit struct {
	throttle.Override
	ends time.Time
}

// limitOf is what a key of a limit goes by now.
func (p *pair) limitOf(name, key string) throttle.Limit {
	return p.limits[name].With(p.keys[name+"|"+key].Override)
}

// setKey has a key count otherwise. The history starts anew, with what is owed.
func (p *pair) setKey(t *rapid.T) {
	name, key := p.name(t), p.key(t)
	l := anyLimitOf(t, name, p.limits[name].Kind)
	o := throttle.Override{Rate: l.Rate}
	if l.Kind == throttle.Funnel || l.Kind == throttle.TokenBucket || l.Kind == throttle.Concurrency {
		o.Capacity = l.Capacity
	}
	if l.Kind == throttle.FixedWindow {
		o.Rate.Per = p.limits[name].Rate.Per
	}
	if margin := p.limits[name].Margin; l.Kind != throttle.Concurrency && o.Rate.Per <= margin {
		o.Rate.Per = margin + time.Microsecond
	}
	p.changeKey(t, name, key)
	k := keyLimit{Override: o}
	if !p.backwards && rapid.Bool().Draw(t, "ends") {
		unit := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour}).Draw(t, "unit")
		k.For = time.Duration(rapid.IntRange(1, 100).Draw(t, "for")) * unit
		k.ends = p.redis.now.Add(k.For)
	}
	p.keys[name+"|"+key] = k
	p.both(t, func(x throttle.Limiter) error { return x.SetKey(t.Context(), name, key, k.Override) })
	p.sameKeys(t, name)
}

func (p *pair) unsetKey(t *rapid.T) {
	name, key := p.name(t), p.key(t)
	p.changeKey(t, name, key)
	delete(p.keys, name+"|"+key)
	p.both(t, func(x throttle.Limiter) error { return x.UnsetKey(t.Context(), name, key) })
	p.sameKeys(t, name)
}

func (p *pair) sameKeys(t *rapid.T, name string) {
	redis, err := p.redis.Keys(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	local, err := p.local.Keys(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(local, redis, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("keys: local (-) and redis (+) differ:\n%s", diff)
	}
}

// changeKey judges what a key has counted so far. As in redefine, a meter that may
// be gone starts anew; and so does one whose clock was set back: what it owed before
// the limit itself was defined is forgotten by both, but by Redis only from then on.
func (p *pair) changeKey(t *rapid.T, name, key string) {
	p.judge(t)
	p.denied = nil
	d, err := p.local.Peek(t.Context(), name, key)
	if err != nil {
		t.Fatalf("local: %v", err)
	}
	if d.ResetAfter == 0 || p.gone[name+"|"+key] || p.behind > 0 {
		p.resetKey(t, name, key)
	}
	p.restartHistory(name + "|" + key)
}

func (p *pair) both(t *rapid.T, f func(throttle.Limiter) error) {
	t.Helper()
	for _, l := range []throttle.Limiter{p.redis, p.local} {
		if err := f(l); err != nil {
			t.Fatalf("%T: %v", l, err)
		}
	}
}

func (p *pair) anyLimit(t *rapid.T, name string) throttle.Limit {
	return anyLimitOf(t, name, rapid.SampledFrom(everyKind).Draw(t, "kind"))
}

func anyLimitOf(t *rapid.T, name string, kind throttle.Kind) throttle.Limit {
	l := throttle.Limit{Name: name, Kind: kind}
	if kind == throttle.Concurrency {
		l.Capacity = rapid.IntRange(1, 5).Draw(t, "capacity")
		l.Lease = time.Duration(rapid.IntRange(1, 90).Draw(t, "lease")) * time.Second
		return l
	}
	l.Rate.N = rapid.IntRange(1, 7).Draw(t, "n")
	l.Rate.Per = rapid.SampledFrom([]time.Duration{
		time.Duration(rapid.IntRange(1, 500).Draw(t, "µs")) * time.Microsecond, 700 * time.Millisecond, time.Second, time.Minute, time.Hour, throttle.Day, throttle.Week, throttle.Month,
	}).Draw(t, "per")
	if kind == throttle.Funnel || kind == throttle.TokenBucket {
		l.Capacity = rapid.IntRange(1, 5).Draw(t, "capacity")
	}
	if kind == throttle.FixedWindow {
		l.Zone = rapid.SampledFrom([]string{"", "UTC", "America/New_York", "Asia/Kathmandu"}).Draw(t, "zone")
	}
	if rapid.IntRange(0, 3).Draw(t, "has margin") == 0 {
		most := l.Rate.Per.Microseconds()
		if kind == throttle.FixedWindow {
			most = (most + 1) / 2
		}
		l.Margin = time.Duration(rapid.Int64Range(0, most-1).Draw(t, "margin")) * time.Microsecond
	}
	return l
}

func (p *pair) define(t *rapid.T, l throttle.Limit) {
	p.limits[l.Name] = l
	p.both(t, func(x throttle.Limiter) error { return x.Set(t.Context(), l) })
}

func (p *pair) name(t *rapid.T) string {
	return fmt.Sprintf("l%d", rapid.IntRange(0, len(p.limits)-1).Draw(t, "limit"))
}

func (p *pair) key(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
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

func (p *pair) ask(t *rapid.T, needs []throttle.Need) throttle.Decision {
	got, err := p.redis.AllowAll(t.Context(), needs...)
	if err != nil {
		t.Fatalf("redis: %v", err)
	}
	want, err := p.local.AllowAll(t.Context(), needs...)
	if err != nil {
		t.Fatalf("local: %v", err)
	}
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
	if diff := cmp.Diff(local, redis, cmpopts.IgnoreFields(throttle.Decision{}, "Holder")); diff != "" {
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
			p.calls = append(p.calls, call{n, redis, local, meter, len(p.histories[meter])})
		}
		p.histories[meter] = append(p.histories[meter], a)
		p.counts(n.Limit, n.Key)
	}
	p.denied = nil
}

func (p *pair) look(t *rapid.T) {
	name, key := p.name(t), p.key(t)
	redis, err := p.redis.Peek(t.Context(), name, key)
	if err != nil {
		t.Fatalf("redis: %v", err)
	}
	local, err := p.local.Peek(t.Context(), name, key)
	if err != nil {
		t.Fatalf("local: %v", err)
	}
	p.same(t, redis, local)
}

// comeBack holds the last denial to its word, if nothing has changed since.
func (p *pair) comeBack(t *rapid.T) {
	if p.denied == nil || p.behind > 0 || p.shutsAgain(p.denied.needs) || p.tooMuchThen(p.denied.needs) {
		t.Skip("nothing was promised")
	}
	needs, retryAfter := p.denied.needs, p.denied.retryAfter
	p.advance(t, retryAfter-time.Microsecond)
	if d := p.ask(t, needs); d.Outcome != throttle.Denied || d.RetryAfter != time.Microsecond {
		t.Fatalf("a microsecond before retry-after: %s", d)
	}
	p.advance(t, time.Microsecond)
	if d := p.ask(t, needs); !d.OK() {
		t.Fatalf("at retry-after: %s", d)
	}
}

// tooMuchThen is whether a cost fits only until the key's own capacity ends.
func (p *pair) tooMuchThen(needs []throttle.Need) bool {
	return slices.ContainsFunc(needs, func(n throttle.Need) bool {
		l := p.limits[n.Limit]
		return !p.keys[n.Limit+"|"+n.Key].ends.IsZero() && n.Cost > stdcmp.Or(l.Capacity, l.Rate.N)
	})
}

// shutsAgain is whether a meter that is open now can be shut when the others
// are, or the block ends: a fixed window with a margin at the start of the next one, or one whose own
// rate ends.
func (p *pair) shutsAgain(needs []throttle.Need) bool {
	return (len(needs) > 1 || p.blocked) && slices.ContainsFunc(needs, func(n throttle.Need) bool {
		return p.limits[n.Limit].Kind == throttle.FixedWindow && p.limits[n.Limit].Margin > 0 ||
			!p.keys[n.Limit+"|"+n.Key].ends.IsZero()
	})
}

func (p *pair) advance(t *rapid.T, d time.Duration) {
	p.redis.wait(d)
	p.local.wait(d)
	for meter, k := range p.keys {
		if !k.ends.IsZero() && !p.redis.now.Before(k.ends) {
			p.judge(t)
			p.restartHistory(meter)
			delete(p.keys, meter)
		}
	}
}

func (p *pair) wait(t *rapid.T) {
	unit := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, throttle.Day}).Draw(t, "unit")
	p.denied = nil
	p.advance(t, time.Duration(rapid.IntRange(0, 100).Draw(t, "units"))*unit)
}

func (p *pair) setBack(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 20_000_000).Draw(t, "µs back")) * time.Microsecond
	if !p.backwards || p.behind+d >= time.Minute {
		t.Skip("not further back")
	}
	p.denied = nil
	p.behind += d
	p.advance(t, -d)
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

// redefine changes a limit, but not its kind. A meter that is as if never used
// may be gone, so where the new words could count something of it again it
// starts anew.
func (p *pair) redefine(t *rapid.T) {
	was := p.limits[p.name(t)]
	l := anyLimitOf(t, was.Name, was.Kind)
	p.judge(t)
	for _, key := range []string{"a", "b"} {
		d, err := p.local.Peek(t.Context(), l.Name, key)
		if err != nil {
			t.Fatalf("local: %v", err)
		}
		if d.ResetAfter == 0 || p.gone[l.Name+"|"+key] {
			p.resetKey(t, l.Name, key)
		}
		p.restartHistory(l.Name + "|" + key)
	}
	p.denied = nil
	p.define(t, l)
}

// restartHistory begins a history again, with what is still held.
func (p *pair) restartHistory(meter string) {
	delete(p.histories, meter)
	var rest []lease
	for _, l := range p.leases {
		if l.meter != meter {
			rest = append(rest, l)
		}
	}
	p.leases = rest
	p.calls = slices.DeleteFunc(p.calls, func(c call) bool { return c.meter == meter })
}

func (p *pair) pause(t *rapid.T) {
	name := p.name(t)
	p.both(t, func(x throttle.Limiter) error { return x.Pause(t.Context(), name) })
	p.look(t)
	p.ask(t, []throttle.Need{{Limit: name, Key: "a", Cost: 1}})
	p.denied = nil
	p.both(t, func(x throttle.Limiter) error { return x.Resume(t.Context(), name) })
}

func (p *pair) block(t *rapid.T) {
	p.blocked = true
	name, key := p.name(t), p.key(t)
	until := p.redis.now.Add(time.Duration(rapid.IntRange(-1000, 1000).Draw(t, "block ms")) * time.Millisecond)
	p.denied = nil
	p.both(t, func(x throttle.Limiter) error { return x.Block(t.Context(), name, key, until) })
}

func (p *pair) reset(t *rapid.T) {
	p.judge(t)
	p.denied = nil
	p.resetKey(t, p.name(t), p.key(t))
}

func (p *pair) resetKey(t *rapid.T, name, key string) {
	p.both(t, func(x throttle.Limiter) error { return x.Reset(t.Context(), name, key) })
	p.restartHistory(name + "|" + key)
	delete(p.counted, name+"|"+key)
	delete(p.gone, name+"|"+key)
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
	redis, err := p.redis.Extend(t.Context(), l.redis, l.need)
	if err != nil {
		t.Fatalf("redis: %v", err)
	}
	local, err := p.local.Extend(t.Context(), l.local, l.need)
	if err != nil {
		t.Fatalf("local: %v", err)
	}
	if redis != local {
		t.Fatalf("extended: %t in process, %t on redis", local, redis)
	}
	if redis {
		p.histories[l.meter][l.index].Until = p.redis.now.UnixMicro() + p.limits[l.need.Limit].Lease.Microseconds()
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

// judge holds all histories against their limits. The time of a sliding window
// stands still while the clock, set back, has not caught up; all other kinds
// keep to the clock even then.
func (p *pair) judge(t *rapid.T) {
	for meter, history := range p.histories {
		l := p.limitOf(meter[:2], meter[3:])
		if l.Kind == throttle.SlidingWindow {
			for i := 1; i < len(history); i++ {
				history[i].At = max(history[i].At, history[i-1].At)
			}
		}
		if err := throttletest.Check(l, history); err != nil {
			t.Fatalf("%v\n%v", err, history)
		}
	}
}
