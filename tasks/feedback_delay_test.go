package tasks

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// TestDelayed: a Crawl-delay only ever slows a host down, and takes nobody's words
// away.
func TestDelayed(t *testing.T) {
	const delay = 10 * time.Second
	every := throttle.Every
	for _, row := range []struct {
		name     string
		rate     throttle.Rate
		capacity int
		own      throttle.Override
		want     throttle.Override // zero: it stays as it is
	}{
		{"a fast limit", throttle.PerSecond(1), 1, throttle.Override{}, throttle.Override{Rate: every(delay), Capacity: 1, For: delayLife}},
		{"a slow one", every(time.Minute), 1, throttle.Override{}, throttle.Override{}},
		{"a slow one with bursts", every(time.Minute), 3, throttle.Override{}, throttle.Override{Capacity: 1, For: delayLife}},
		{"told before", throttle.PerSecond(1), 1, throttle.Override{Rate: every(delay), Capacity: 1, For: 20 * time.Hour}, throttle.Override{}},
		{"told long before", throttle.PerSecond(1), 1, throttle.Override{Rate: every(delay), Capacity: 1, For: time.Hour}, throttle.Override{Rate: every(delay), Capacity: 1, For: delayLife}},
		{"said slower", throttle.PerSecond(1), 1, throttle.Override{Rate: every(time.Minute), For: time.Hour}, throttle.Override{}},
		{"said slower, with bursts", throttle.PerSecond(1), 1, throttle.Override{Rate: every(time.Minute), Capacity: 2, For: time.Hour}, throttle.Override{Rate: every(time.Minute), Capacity: 1, For: time.Hour}},
		{"said faster for a while", throttle.PerSecond(1), 1, throttle.Override{Rate: throttle.PerSecond(9), For: time.Hour}, throttle.Override{Rate: every(delay), Capacity: 1, For: delayLife}},
		{"said faster", throttle.PerSecond(9), 1, throttle.Override{Rate: throttle.PerSecond(1)}, throttle.Override{Rate: every(delay), Capacity: 1}},
	} {
		l := throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: row.rate, Capacity: row.capacity}
		if got, ok := delayed(l, row.own, delay); ok != (row.want != throttle.Override{}) || ok && got != row.want {
			t.Errorf("%s: %v, %v; want %v", row.name, got, ok, row.want)
		}
	}
	log := throttle.Limit{Name: "host", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(1)}
	if got, ok := delayed(log, throttle.Override{}, delay); ok {
		t.Errorf("a log knows no intervals: %v", got)
	}
}
