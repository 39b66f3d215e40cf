package throttle_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

func TestAdapt_Invalid(t *testing.T) {
	for want, l := range map[string]throttle.Limit{
		`adapt "adapt": a concurrency limit cannot adapt; want funnel, token_bucket, sliding_log or sliding_window`: {Kind: throttle.Concurrency, Capacity: 1, Adapt: &throttle.Adapt{}},
		`adapt.min 2/s: want a rate, at most the limit's own 1/s`:                                                   {Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Adapt: &throttle.Adapt{Min: throttle.PerSecond(2)}},
		`adapt.latency -1s: want how long a call may take, in whole microseconds`:                                   {Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Adapt: &throttle.Adapt{Latency: -time.Second}},
	} {
		l.Name = "l"
		if err := l.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
