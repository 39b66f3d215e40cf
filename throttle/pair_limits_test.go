package throttle_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/throttle"
)

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
