package throttle

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestS7LocalTokenBucket: defining it twice changes nothing, a changed policy
// takes effect without handing out permits again, and only listed apps, by
// their exact names, may use it.
func TestS7LocalTokenBucket(t *testing.T) {
	ctx := t.Context()
	policy := Limit{Name: "bucket", Kind: TokenBucket, Rate: PerSecond(1), Capacity: 10, Apps: []string{"foobar", "baz"}}
	l, _ := newLocal(t, policy)
	l.App = "foobar"
	if got := allowed(t, l, "bucket", "", 20); got != 10 {
		t.Errorf("%d of 20 allowed, want 10", got)
	}
	if err := l.Define(ctx, policy); err != nil {
		t.Fatal(err)
	}
	if got := allowed(t, l, "bucket", "", 20); got != 0 {
		t.Errorf("%d allowed after the same definition, want 0", got)
	}
	policy.Capacity = 15
	if err := l.Define(ctx, policy); err != nil {
		t.Fatal(err)
	}
	if got := allowed(t, l, "bucket", "", 20); got != 5 {
		t.Errorf("%d allowed after the capacity grew by 5, want 5", got)
	}
	for _, app := range []string{"bar", "foo", "foobar,baz", ""} {
		l.App = app
		if d, err := l.Allow(ctx, "bucket", ""); err != nil || d.Outcome != NoLimit {
			t.Errorf("app %q: %s, %v; want no such limit", app, d, err)
		}
	}
	l.App = "baz"
	if err := l.Delete(ctx, "bucket"); err != nil {
		t.Fatal(err)
	}
	if d, err := l.Allow(ctx, "bucket", ""); err != nil || d.Outcome != NoLimit {
		t.Errorf("after Delete: %s, %v; want no such limit", d, err)
	}
	if err := l.Define(ctx, policy); err != nil {
		t.Fatal(err)
	}
	if got := allowed(t, l, "bucket", "", 20); got != 0 {
		t.Errorf("%d allowed after it was deleted and defined again, want 0", got)
	}
}

func TestLocalDefineAndSet(t *testing.T) {
	ctx := t.Context()
	file := Limit{Name: "a", Kind: SlidingLog, Rate: PerMinute(5)}
	changed, run := file, file
	changed.Rate, run.Rate = PerMinute(6), PerMinute(7)

	l, _ := newLocal(t, file)
	define := func(limit Limit) func() error { return func() error { return l.Define(ctx, limit) } }
	set := func(limit Limit) func() error { return func() error { return l.Set(ctx, limit) } }
	for _, tt := range []struct {
		step string
		do   func() error
		want string
	}{
		{"set", set(run), "sliding_log 7/m"},
		{"same words keep what was set", define(file), "sliding_log 7/m"},
		{"pause", func() error { return l.Pause(ctx, "a") }, "sliding_log 7/m (paused)"},
		{"changed words win, the pause stays", define(changed), "sliding_log 6/m (paused)"},
		{"set again", set(run), "sliding_log 7/m (paused)"},
		{"back to the first words", define(file), "sliding_log 5/m (paused)"},
		{"resume", func() error { return l.Resume(ctx, "a") }, "sliding_log 5/m"},
		{"a limit cannot be defined as paused", define(Limit{Name: "a", Kind: Funnel, Rate: PerSecond(1), Paused: true}), "funnel 1/s capacity 1"},
	} {
		if err := tt.do(); err != nil {
			t.Fatalf("%s: %v", tt.step, err)
		}
		limits, err := l.Limits(ctx)
		if err != nil || len(limits) != 1 {
			t.Fatalf("%s: %v, %v; want one limit", tt.step, limits, err)
		}
		if got := limits[0].String(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.step, got, tt.want)
		}
	}
}

func TestLocalLimitsAreSortedAndSpelledOut(t *testing.T) {
	l, _ := newLocal(t,
		Limit{Name: "b", Kind: Concurrency, Capacity: 2},
		Limit{Name: "a", Kind: Funnel, Rate: PerSecond(1), Apps: []string{"x"}})
	want := []Limit{
		{Name: "a", Kind: Funnel, Rate: PerSecond(1), Capacity: 1, Apps: []string{"x"}},
		{Name: "b", Kind: Concurrency, Capacity: 2, Lease: DefaultLease},
	}
	for range 2 {
		got, err := l.Limits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limits (-want +got):\n%s", diff)
		}
		got[0].Apps[0] = "the caller's own copy"
	}
}

func TestLocalDefineRefusesAllIfOneIsWrong(t *testing.T) {
	l := &Local{}
	err := l.Define(t.Context(), Limit{Name: "good", Kind: Funnel, Rate: PerSecond(1)}, Limit{Name: "bad", Kind: "leaky"})
	if err == nil || !strings.Contains(err.Error(), `limit bad: kind "leaky"`) {
		t.Errorf("error %v, want it to name the limit and the field", err)
	}
	if limits, err := l.Limits(t.Context()); err != nil || len(limits) != 0 {
		t.Errorf("limits %v, %v; want none", limits, err)
	}
	if err := l.Set(t.Context(), Limit{Name: "bad", Kind: Funnel}); err == nil {
		t.Error("Set took a funnel without a rate")
	}
}

func ExampleLocal() {
	ctx := context.Background()
	limiter := &Local{Clock: func() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }}
	if err := limiter.Define(ctx, Limit{Name: "replies", Kind: SlidingLog, Rate: PerMinute(2)}); err != nil {
		fmt.Println(err)
	}
	for range 3 {
		d, err := limiter.Allow(ctx, "replies", "laoqian")
		if err != nil {
			fmt.Println(err)
		}
		fmt.Println(d)
	}
	// Output:
	// allowed by replies for laoqian, 1 of 2 left
	// allowed by replies for laoqian, 0 of 2 left
	// denied by replies for laoqian: retry after 1 min
}
