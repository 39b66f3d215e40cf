package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/throttle"
)

func TestLimitsSet_KeepsOtherSettings(t *testing.T) {
	rate, kind := throttle.PerMinute(3), throttle.SlidingLog
	slots, window, bucket, four := throttle.Concurrency, throttle.FixedWindow, throttle.TokenBucket, 4
	adapts := throttle.Limit{Name: "n", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Margin: time.Millisecond, Adapt: &throttle.Adapt{}}
	old := throttle.Limit{Name: "n", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 5, Apps: []string{"a"}}
	tests := []struct {
		name string
		set  limitsSet
		want throttle.Limit
	}{
		{"nothing", limitsSet{}, old},
		{"rate", limitsSet{Rate: rate}, throttle.Limit{Name: "n", Kind: throttle.Funnel, Rate: rate, Capacity: 5, Apps: []string{"a"}}},
		{"another bucket has it", limitsSet{Kind: bucket}, throttle.Limit{Name: "n", Kind: bucket, Rate: throttle.PerSecond(1), Capacity: 5, Apps: []string{"a"}}},
		{"slots have no rate", limitsSet{Kind: slots, Capacity: &four}, throttle.Limit{Name: "n", Kind: slots, Capacity: 4, Apps: []string{"a"}}},
		{"another kind has no capacity", limitsSet{Kind: kind}, throttle.Limit{Name: "n", Kind: kind, Rate: throttle.PerSecond(1), Apps: []string{"a"}}},
	}
	for kind, want := range map[throttle.Kind]throttle.Limit{
		bucket: {Name: "n", Kind: bucket, Rate: throttle.PerSecond(1), Margin: time.Millisecond, Adapt: &throttle.Adapt{}},
		window: {Name: "n", Kind: window, Rate: throttle.PerSecond(1), Margin: time.Millisecond},
		slots:  {Name: "n", Kind: slots},
	} {
		if diff := cmp.Diff(want, become(adapts, kind)); diff != "" {
			t.Errorf("one that adapts, as %s: -want +got:\n%s", kind, diff)
		}
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.set.change(old)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}
