package throttle_test

import (
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/throttle"
)

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
