package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/throttle"
)

func TestSetKeepsWhatNoFlagNames(t *testing.T) {
	rate, kind := throttle.PerMinute(3), throttle.SlidingLog
	old := throttle.Limit{Name: "n", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 5, Apps: []string{"a"}}
	tests := []struct {
		name string
		set  limitsSet
		want throttle.Limit
	}{
		{"nothing", limitsSet{}, old},
		{"rate", limitsSet{Rate: &rate}, throttle.Limit{Name: "n", Kind: throttle.Funnel, Rate: rate, Capacity: 5, Apps: []string{"a"}}},
		{"another kind has no capacity", limitsSet{Kind: &kind}, throttle.Limit{Name: "n", Kind: kind, Rate: throttle.PerSecond(1), Apps: []string{"a"}}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.set.change(old)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.name, diff)
		}
	}
}
