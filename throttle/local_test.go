package throttle

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newLocal is a Local with these limits at noon, and its clock.
func newLocal(t *testing.T, limits ...Limit) (*Local, *time.Time) {
	t.Helper()
	now := time.UnixMicro(epoch)
	l := &Local{Clock: func() time.Time { return now }}
	if err := l.Define(t.Context(), limits...); err != nil {
		t.Fatal(err)
	}
	return l, &now
}

// allowed calls Allow some times and returns how often it said yes.
func allowed(t *testing.T, l *Local, limit, key string, calls int) (yes int) {
	t.Helper()
	for range calls {
		d, err := l.Allow(t.Context(), limit, key)
		if err != nil {
			t.Fatal(err)
		}
		if d.OK() {
			yes++
		}
	}
	return yes
}

// TestS1S9LocalSlidingWindow: five of twenty calls a minute, and the denied ones
// leave no trace.
func TestS1S9LocalSlidingWindow(t *testing.T) {
	l, now := newLocal(t, Limit{Name: "reply", Kind: SlidingLog, Rate: PerMinute(5)})
	if got := allowed(t, l, "reply", "laoqian", 20); got != 5 {
		t.Errorf("%d of 20 allowed, want 5", got)
	}
	for range 59 {
		*now = now.Add(time.Second)
		if got := allowed(t, l, "reply", "laoqian", 3); got != 0 {
			t.Errorf("%d allowed within the minute, want 0", got)
		}
	}
	*now = now.Add(time.Second)
	if got := allowed(t, l, "reply", "laoqian", 20); got != 5 {
		t.Errorf("%d of 20 allowed after a minute of hammering, want 5", got)
	}
	if got := allowed(t, l, "reply", "somebody", 20); got != 5 {
		t.Errorf("%d of 20 allowed for another key, want 5", got)
	}
}

// TestS2LocalLargeCounts: a million a minute is never passed.
func TestS2LocalLargeCounts(t *testing.T) {
	l, now := newLocal(t, Limit{Name: "big", Kind: SlidingWindow, Rate: PerMinute(1_000_000)})
	for i := range 11 {
		d, err := l.AllowN(t.Context(), "big", "", 100_000)
		if err != nil {
			t.Fatal(err)
		}
		if want := i < 10; d.OK() != want {
			t.Errorf("call %d: %s", i, d)
		}
		*now = now.Add(time.Second)
	}
}

// TestS3LocalFunnel: ten of twenty calls at once, and then one per second; half
// seconds are not lost, and years of idleness overflow nothing.
func TestS3LocalFunnel(t *testing.T) {
	l, now := newLocal(t, Limit{Name: "funnel", Kind: Funnel, Rate: PerSecond(1), Capacity: 10})
	if got := allowed(t, l, "funnel", "", 20); got != 10 {
		t.Errorf("%d of 20 allowed, want 10", got)
	}
	total := 0
	for range 20 {
		*now = now.Add(time.Second / 2)
		total += allowed(t, l, "funnel", "", 1)
	}
	if total != 10 {
		t.Errorf("%d allowed in 10 s, want 10", total)
	}
	*now = now.Add(90 * 365 * Day)
	if got := allowed(t, l, "funnel", "", 20); got != 10 {
		t.Errorf("%d of 20 allowed after 90 years, want 10", got)
	}
}

// TestS8LocalFixedWindow: five a minute, also for those without a name.
func TestS8LocalFixedWindow(t *testing.T) {
	l, now := newLocal(t, Limit{Name: "user", Kind: FixedWindow, Rate: PerMinute(5)})
	*now = now.Add(59 * time.Second)
	if got := allowed(t, l, "user", "", 20); got != 5 {
		t.Errorf("%d of 20 allowed, want 5", got)
	}
	*now = now.Add(time.Second)
	if got := allowed(t, l, "user", "", 20); got != 5 {
		t.Errorf("%d of 20 allowed in the next minute, want 5", got)
	}
}

func TestLocalDecisions(t *testing.T) {
	at := time.UnixMicro(epoch)
	limits := []Limit{
		{Name: "api", Kind: SlidingLog, Rate: PerMinute(3)},
		{Name: "host", Kind: Funnel, Rate: PerSecond(1), Capacity: 2},
		{Name: "other", Kind: Funnel, Rate: PerSecond(1), Apps: []string{"foobar"}},
	}
	for _, tt := range []struct {
		name          string
		before, needs []Need
		want          Decision
	}{
		{
			"fewest left decides", nil,
			[]Need{{"api", "", 0}, {"host", "a", 0}},
			Decision{
				Outcome: Allowed, Limit: "host", Key: "a", Cost: 1, Capacity: 2, Remaining: 1, ResetAfter: time.Second, At: at,
				Taken: []Taken{{Need{"api", "", 1}, mark{epoch}}, {Need{"host", "a", 1}, mark{epoch + us(time.Second)}}},
			},
		},
		{
			"the one to wait longest for decides",
			[]Need{{"api", "", 3}, {"host", "a", 2}},
			[]Need{{"host", "a", 1}, {"api", "", 1}},
			Decision{Outcome: Denied, Limit: "api", Cost: 1, Capacity: 3, RetryAfter: time.Minute, ResetAfter: time.Minute, At: at},
		},
		{
			"the same meter twice is one of both costs", nil,
			[]Need{{"host", "a", 1}, {"api", "", 1}, {"host", "a", 2}},
			Decision{Outcome: Never, Limit: "host", Key: "a", Cost: 3, Capacity: 2, Remaining: 2, At: at},
		},
		{
			"no limit", nil,
			[]Need{{"host", "a", 1}, {"nothing", "", 1}},
			Decision{Outcome: NoLimit, Limit: "nothing", Cost: 1, At: at},
		},
		{
			"limit of another app", nil,
			[]Need{{"other", "", 1}},
			Decision{Outcome: NoLimit, Limit: "other", Cost: 1, ForOthers: true, At: at},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := newLocal(t, limits...)
			l.App = "bar"
			if tt.before != nil {
				if d, err := l.AllowAll(t.Context(), tt.before...); err != nil || !d.OK() {
					t.Fatal(d, err)
				}
			}
			got, err := l.AllowAll(t.Context(), tt.needs...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLocalDenialTakesNothing: a denial by one limit charges none of the others.
func TestLocalDenialTakesNothing(t *testing.T) {
	l, _ := newLocal(t,
		Limit{Name: "a", Kind: Funnel, Rate: PerSecond(1), Capacity: 5},
		Limit{Name: "b", Kind: Funnel, Rate: PerSecond(1), Capacity: 1})
	for i := range 4 {
		d, err := l.AllowAll(t.Context(), Need{Limit: "a"}, Need{Limit: "b"})
		if want := i == 0; err != nil || d.OK() != want {
			t.Errorf("call %d: %s, %v", i, d, err)
		}
	}
	if d, err := l.Peek(t.Context(), "a", ""); err != nil || d.Remaining != 4 {
		t.Errorf("%s, %v; want 4 left", d, err)
	}
}

func TestLocalRefusesBadNeeds(t *testing.T) {
	l, _ := newLocal(t, Limit{Name: "a", Kind: Funnel, Rate: PerSecond(1)})
	for _, n := range []int{-1, -maxPermits} {
		if d, err := l.AllowN(t.Context(), "a", "", n); err == nil {
			t.Errorf("AllowN of %d: %s, want an error", n, d)
		}
	}
	const want = "cost 2147483648: want 0 to 2147483647 of limit a"
	if _, err := l.AllowN(t.Context(), "a", "", 1<<31); err == nil || err.Error() != want {
		t.Errorf("AllowN of 2^31: %v, want %s", err, want)
	}
	if d, err := l.AllowN(t.Context(), "a", "", maxPermits+1); err != nil || d.Outcome != Never {
		t.Errorf("AllowN of more than any limit has: %s, %v; want never", d, err)
	}
}

// TestLocalColdKeysCostNoMemory: what counts nothing any more is dropped while
// calls go on, and looking at a key keeps nothing.
func TestLocalColdKeysCostNoMemory(t *testing.T) {
	l, now := newLocal(t, Limit{Name: "a", Kind: SlidingLog, Rate: PerMinute(5)})
	for i := range 1000 {
		allowed(t, l, "a", fmt.Sprint(i), 1)
	}
	*now = now.Add(3 * time.Minute)
	for i := range 2000 {
		if _, err := l.Peek(t.Context(), "a", fmt.Sprint("peek ", i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.meters) != 0 {
		t.Errorf("%d meters are kept, want none", len(l.meters))
	}
}

// TestLocalIsSafeForConcurrentUse: many goroutines never get more than there is.
func TestLocalIsSafeForConcurrentUse(t *testing.T) {
	l, _ := newLocal(t, Limit{Name: "a", Kind: Funnel, Rate: PerSecond(1), Capacity: 100})
	var yes atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if d, err := l.Allow(context.Background(), "a", ""); err == nil && d.OK() {
					yes.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if yes.Load() != 100 {
		t.Errorf("%d allowed, want 100", yes.Load())
	}
}
