package throttle_test

import (
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/throttle"
)

func (p *pair) anyLimit(t *rapid.T, name string) throttle.Limit {
	return limittest.Any(t, name, rapid.SampledFrom(limittest.Kinds).Draw(t, "kind"))
}

func (p *pair) define(t *rapid.T, l throttle.Limit) {
	p.limits[l.Name] = l
	p.both(t, func(x *throttle.Limiter) error { return x.Set(t.Context(), l) })
}

// redefine changes a limit, but not its kind. A meter that is as if never used
// may be gone, so where the new words could count something of it again it
// starts again.
func (p *pair) redefine(t *rapid.T) {
	was := p.limits[p.name(t)]
	l := limittest.Any(t, was.Name, was.Kind)
	p.judge(t)
	for _, key := range []string{"a", "b"} {
		d, err := p.local.AllowN(t.Context(), l.Name, key, 0)
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
	p.both(t, func(x *throttle.Limiter) error { return x.Pause(t.Context(), name) })
	p.look(t)
	p.ask(t, []throttle.Need{{Limit: name, Key: "a", Cost: 1}})
	p.denied = nil
	p.both(t, func(x *throttle.Limiter) error { return x.Resume(t.Context(), name) })
}

func (p *pair) block(t *rapid.T) {
	name, key := p.name(t), p.key(t)
	until := p.redis.now.Add(time.Duration(rapid.IntRange(-1000, 1000).Draw(t, "block ms")) * time.Millisecond)
	p.denied = nil
	p.both(t, func(x *throttle.Limiter) error { return x.Block(t.Context(), name, key, until) })
}

func (p *pair) reset(t *rapid.T) {
	p.judge(t)
	p.denied = nil
	p.resetKey(t, p.name(t), p.key(t))
}

func (p *pair) resetKey(t *rapid.T, name, key string) {
	p.both(t, func(x *throttle.Limiter) error { return x.Reset(t.Context(), name, key) })
	p.restartHistory(name + "|" + key)
	delete(p.counted, name+"|"+key)
	delete(p.gone, name+"|"+key)
}

// limitOf is what a key of a limit goes by now.
func (p *pair) limitOf(name, key string) throttle.Limit {
	return p.limits[name].With(p.keys[name+"|"+key])
}

// setKey sets the override of a key. The history starts again, with the permits in use.
func (p *pair) setKey(t *rapid.T) {
	name, key := p.name(t), p.key(t)
	l := limittest.Any(t, name, p.limits[name].Kind)
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
	p.keys[name+"|"+key] = o
	p.both(t, func(x *throttle.Limiter) error { return x.SetKey(t.Context(), name, key, o) })
	p.sameKeys(t, name)
}

func (p *pair) unsetKey(t *rapid.T) {
	name, key := p.name(t), p.key(t)
	p.changeKey(t, name, key)
	delete(p.keys, name+"|"+key)
	p.both(t, func(x *throttle.Limiter) error { return x.UnsetKey(t.Context(), name, key) })
	p.sameKeys(t, name)
}

func (p *pair) sameKeys(t *rapid.T, name string) {
	redis, local := answers(t, p, func(l *throttle.Limiter) ([]throttle.KeyState, error) { return l.Keys(t.Context(), name) })
	if diff := cmp.Diff(local, redis, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(throttle.KeyState{})); diff != "" {
		t.Fatalf("keys: local (-) and redis (+) differ:\n%s", diff)
	}
}

// changeKey judges what a key has counted so far. As in redefine, a meter that may
// be gone starts again, and so does one whose clock was set back: its state from before
// the limit itself was defined is forgotten by both, but by Redis only from then on.
func (p *pair) changeKey(t *rapid.T, name, key string) {
	p.judge(t)
	p.denied = nil
	d, err := p.local.AllowN(t.Context(), name, key, 0)
	if err != nil {
		t.Fatalf("local: %v", err)
	}
	if d.ResetAfter == 0 || p.gone[name+"|"+key] || p.behind > 0 {
		p.resetKey(t, name, key)
	}
	p.restartHistory(name + "|" + key)
}
