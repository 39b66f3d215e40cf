package throttle_test

import (
	"time"

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
