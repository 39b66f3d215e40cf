package throttle_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestRedisDecidesAsLocal runs random calls on both, on mixed limits that
// change, with a clock that jumps. Every decision must be the same to the
// microsecond, every retry-after true, and every history within its limit.
func TestRedisDecidesAsLocal(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	onRedis(t, func(t *testing.T, s *stage) {
		rapid.Check(t, func(t *rapid.T) {
			s.restart(t)
			p := &pair{
				redis: s, local: localStage(), backwards: rapid.IntRange(0, 3).Draw(t, "clock goes backwards") == 0,
				limits: map[string]throttle.Limit{}, histories: map[string][]throttletest.Admission{}, keys: map[string]throttle.Override{},
				counted: map[string]time.Time{}, gone: map[string]bool{},
			}
			for i := range rapid.IntRange(1, 4).Draw(t, "limits") {
				p.define(t, p.anyLimit(t, fmt.Sprintf("l%d", i)))
			}
			t.Repeat(map[string]func(*rapid.T){
				"call": p.call, "call again": p.call, "look": p.look, "come back": p.comeBack, "wait": p.wait, "set back": p.setBack,
				"redefine": p.redefine, "pause": p.pause, "block": p.block, "reset": p.reset, "extend": p.extend, "free": p.free,
				"settle": p.settle, "settle more": p.settle, "set key": p.setKey, "unset key": p.unsetKey, "throttle": p.throttle,
			})
			p.judge(t)
		})
	})
}

// A pair is a limiter in Redis and a local limiter that get the same calls.
type pair struct {
	redis, local *stage
	// backwards is whether the clock may be set back, by less than a minute in
	// all: so long do meters outlive what they count. No lease is extended then:
	// it would come back to life with its permit taken.
	backwards bool
	behind    time.Duration

	limits    map[string]throttle.Limit
	histories map[string][]throttletest.Admission // by limit, key; since the limit last changed
	keys      map[string]throttle.Override        // by limit, key: what was set for it
	counted   map[string]time.Time                // by limit, key: when the meter counted something last
	gone      map[string]bool                     // by limit, key: whether Redis may have dropped what it counted
	denied    *lastDenial
	leases    []lease
	calls     []*call
}

func (p *pair) both(t *rapid.T, f func(*throttle.Limiter) error) {
	t.Helper()
	for _, l := range []*throttle.Limiter{p.redis.Limiter, p.local.Limiter} {
		if err := f(l); err != nil {
			t.Fatalf("%T: %v", l, err)
		}
	}
}

// answers makes the same call to both limiters.
func answers[T any](t *rapid.T, p *pair, call func(*throttle.Limiter) (T, error)) (redis, local T) {
	t.Helper()
	redis, err := call(p.redis.Limiter)
	if err != nil {
		t.Fatalf("redis: %v", err)
	}
	if local, err = call(p.local.Limiter); err != nil {
		t.Fatalf("local: %v", err)
	}
	return redis, local
}

func (p *pair) name(t *rapid.T) string {
	return fmt.Sprintf("l%d", rapid.IntRange(0, len(p.limits)-1).Draw(t, "limit"))
}

func (p *pair) key(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
}

// judge holds all histories against their limits. The time of a sliding window
// does not move until a clock that was set back has caught up; all other kinds
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
	p.calls = slices.DeleteFunc(p.calls, func(c *call) bool { return c.meter == meter })
}
