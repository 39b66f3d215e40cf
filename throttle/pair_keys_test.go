package throttle_test

import (
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/throttle"
)

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
