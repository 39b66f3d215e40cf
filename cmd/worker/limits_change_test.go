package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestLimitsSet_CapacityBelowOne: a capacity that no limit can have is refused, with what to do instead.
func TestLimitsSet_CapacityBelowOne(t *testing.T) {
	for _, capacity := range []string{"0", "-1"} {
		var stderr bytes.Buffer
		code := execute(t.Context(), []string{"limits", "set", "api", "--kind", "funnel", "--rate", "1/s", "--capacity", capacity, "--redis", redistest.Run(t).URL()}, cli.IO{Out: &stderr, Err: &stderr})
		if want := "--capacity " + capacity + ": want at least 1; use \"worker limits pause"; code != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("exit code %d, %s; want 2, %s", code, &stderr, want)
		}
	}
}

// TestVersionFlag: --version says what the command version does.
func TestVersionFlag(t *testing.T) {
	var flag, command bytes.Buffer
	for args, out := range map[string]*bytes.Buffer{"--version": &flag, "version": &command} {
		if code := execute(t.Context(), []string{args}, cli.IO{Out: out, Err: out}); code != 0 {
			t.Errorf("%s: exit code %d", args, code)
		}
	}
	if flag.Len() == 0 || flag.String() != command.String() {
		t.Errorf("--version says %q, version %q", &flag, &command)
	}
}

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
