// Package limittest has limits for tests.
package limittest

import (
	"flag"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/throttle"
)

// Kinds are all kinds of limits.
var Kinds = []throttle.Kind{
	throttle.Funnel, throttle.TokenBucket, throttle.FixedWindow, throttle.SlidingLog, throttle.SlidingWindow, throttle.Concurrency,
}

// Threes has one limit of each kind. Each limit allows three permits at once.
var Threes = []throttle.Limit{
	{Name: "funnel", Kind: throttle.Funnel, Rate: throttle.PerSecond(3), Capacity: 3},
	{Name: "bucket", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(3), Capacity: 3},
	{Name: "fixed", Kind: throttle.FixedWindow, Rate: throttle.PerMinute(3)},
	{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(3)},
	{Name: "window", Kind: throttle.SlidingWindow, Rate: throttle.PerMinute(3)},
	{Name: "running", Kind: throttle.Concurrency, Capacity: 3},
}

// Any draws a random valid limit of a kind.
func Any(t *rapid.T, name string, kind throttle.Kind) throttle.Limit {
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

// FewerChecks makes rapid draw a third as often until the test ends. It is for tests on a real Redis
// that run on miniredis as well, which takes half of the time.
func FewerChecks(t *testing.T) {
	checks := flag.Lookup("rapid.checks").Value
	all := checks.(flag.Getter).Get().(int)
	set := func(n int) {
		if err := checks.Set(strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
	}
	set((all + 2) / 3)
	t.Cleanup(func() { set(all) })
}
