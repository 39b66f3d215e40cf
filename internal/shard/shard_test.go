package shard

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

func TestOf_SpreadsKeys(t *testing.T) {
	const keys, count = 100_000, 16
	var n [count]int
	for i := range keys {
		n[ForKey("crawl", fmt.Sprintf("host-%d.example.com", i), count).Index]++
	}
	for i, n := range n {
		if share := float64(n) * count / keys; share < 0.95 || share > 1.05 {
			t.Errorf("shard %d has %d of %d keys", i, n, keys)
		}
	}
	// Other versions must find the jobs of this one.
	for key, want := range map[string]string{"": "crawl.7", "example.com": "crawl.7", "a": "crawl.10", "b": "crawl.3"} {
		if got := ForKey("crawl", key, count).Name(); got != want {
			t.Errorf("key %q is in %s, want %s", key, got, want)
		}
	}
}

func TestQueues_Part(t *testing.T) {
	queues := Queues{"crawl": {Count: 4}, "a.b": {Count: 2}}
	for name, want := range map[string]Shard{"crawl.3": {"crawl", 3, 4}, "a.b.1": {"a.b", 1, 2}, "crawl.4": {}, "crawl": {}, "crawl.03": {}, "crawl.-1": {}, "x.0": {}, "crawl.": {}} {
		if got := queues.ShardNamed(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

func TestDivide_PartsAddUp(t *testing.T) {
	const count = 16
	for _, l := range []throttle.Limit{
		{Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 16},
		{Kind: throttle.TokenBucket, Rate: throttle.PerMinute(7), Capacity: 100, Adapt: &throttle.Adapt{Min: throttle.PerMinute(1)}},
		{Kind: throttle.FixedWindow, Rate: throttle.PerDay(2000), Zone: "Europe/Paris", Overrides: map[string]throttle.Override{"a": {Rate: throttle.PerDay(33)}}},
		{Kind: throttle.SlidingLog, Rate: throttle.PerSecond(17), Margin: time.Millisecond},
		{Kind: throttle.SlidingWindow, Rate: throttle.PerHour(1001), Adapt: &throttle.Adapt{}},
		{Kind: throttle.Concurrency, Capacity: 31, Overrides: map[string]throttle.Override{"a": {Capacity: 20}}},
	} {
		l.Name = "api"
		var perDay float64
		capacity, overridden := 0, 0
		for _, s := range All("crawl", count) {
			part, err := s.Divide(l)
			if err == nil {
				err = part.Validate()
			}
			if err != nil {
				t.Fatalf("%v of %v: %v", s, l, err)
			}
			if l.Kind != throttle.Concurrency {
				perDay += float64(part.Rate.N) * float64(throttle.Day) / float64(part.Rate.Per)
			}
			capacity += part.MaxCost()
			overridden += part.With(part.Overrides["a"]).MaxCost()
		}
		if want := float64(l.Rate.N) * float64(throttle.Day) / float64(max(1, l.Rate.Per)); perDay < 0.9999*want || perDay > 1.0001*want {
			t.Errorf("%v: the parts have %f a day, want %f", l, perDay, want)
		}
		if capacity != l.MaxCost() || overridden != l.With(l.Overrides["a"]).MaxCost() {
			t.Errorf("%v: the parts have a capacity of %d, and of %d for the key", l, capacity, overridden)
		}
	}
}

func TestDivide_Errors(t *testing.T) {
	for want, l := range map[string]throttle.Limit{
		"capacity 1: want at least 16, one for each of the 16 shards of queue crawl":              {Kind: throttle.Funnel, Rate: throttle.PerSecond(100)},
		"rate 15/m: want at least 16/m, one for each of the 16 shards of queue crawl":             {Kind: throttle.SlidingLog, Rate: throttle.PerMinute(15)},
		"overrides a: rate 3/m: want at least 16/m, one for each of the 16 shards of queue crawl": {Kind: throttle.SlidingLog, Rate: throttle.PerMinute(16), Overrides: map[string]throttle.Override{"a": {Rate: throttle.PerMinute(3)}}},
		"capacity 2: want at least 16, one for each of the 16 shards of queue crawl":              {Kind: throttle.Concurrency, Capacity: 2},
	} {
		for _, s := range All("crawl", 16) {
			if _, err := s.Divide(l); err == nil || err.Error() != want {
				t.Errorf("shard %d: %v, want %s", s.Index, err, want)
			}
		}
	}
}
