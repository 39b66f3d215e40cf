package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// Calls made while one is under way go with the next, in their order, or once enough wait; and
// each has its own answer.
func TestCoalescer_Batches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent [][]int
		calls := &coalescer[int]{send: func(_ context.Context, calls []*int) {
			var numbers []int
			for _, n := range calls {
				numbers = append(numbers, *n)
				*n *= 10
			}
			mu.Lock()
			sent = append(sent, numbers)
			mu.Unlock()
			time.Sleep(time.Millisecond)
		}}
		do := func(n int) {
			if err := calls.do(t.Context(), &n); err != nil || n%10 != 0 {
				t.Errorf("answer %d, %v", n, err)
			}
		}
		for n := 1; n <= 70; n++ {
			go do(n)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		var sizes []int
		for _, numbers := range sent {
			sizes = append(sizes, len(numbers))
		}
		if !slices.Equal(sizes, []int{1, secondSender, 70 - 1 - secondSender}) || !slices.IsSorted(slices.Concat(sent...)) {
			t.Errorf("sent: %v, want 1, then %d, then the others", sent, secondSender)
		}
	})
}

// A call that hangs, as where Redis does, keeps others for some milliseconds only.
func TestCoalescer_HungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := &coalescer[string]{send: func(_ context.Context, calls []*string) {
			if *calls[0] == "hangs" {
				time.Sleep(time.Hour)
			}
		}}
		hangs, other := "hangs", "other"
		go calls.do(t.Context(), &hangs)
		synctest.Wait()
		time.Sleep(maxHold + 1)
		began := time.Now()
		if err := calls.do(t.Context(), &other); err != nil || time.Since(began) != 0 {
			t.Errorf("%v after %s, want no error at once", err, time.Since(began))
		}
		time.Sleep(2 * time.Hour)
	})
}

// A caller that gives up returns at once. Its call goes on for others whose contexts last, with
// the values of the first, and is undone at the end. A call whose context ends before it is sent is
// not sent.
func TestCoalescer_Context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var happened []any
		calls := &coalescer[int]{send: func(ctx context.Context, calls []*int) {
			time.Sleep(maxHold)
			happened = append(happened, *calls[0], len(calls), ctx.Value(key{}), ctx.Err())
		}, undo: func(ctx context.Context, calls []*int) {
			happened = append(happened, "undone", *calls[0], len(calls), ctx.Err())
		}}
		do := func(ctx context.Context, n int, within time.Duration) {
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			began := time.Now()
			if err := calls.do(ctx, &n); (err != nil) != errors.Is(err, context.DeadlineExceeded) || time.Since(began) > within {
				t.Errorf("call %d: %v after %s", n, err, time.Since(began))
			}
		}
		do(t.Context(), 0, 0)
		go do(context.WithValue(t.Context(), key{}, "the first's"), 1, time.Millisecond)
		synctest.Wait()
		go do(t.Context(), 2, time.Microsecond)
		go do(t.Context(), 3, time.Minute)
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []any{1, 1, "the first's", nil, "undone", 1, 1, nil, 3, 1, nil, nil}; !slices.Equal(happened, want) {
			t.Errorf("happened: %v, want %v", happened, want)
		}
	})
}

// TestParseFastLimit_Corrupt: a corrupt summary does not become a limit that lets everything
// through.
func TestParseFastLimit_Corrupt(t *testing.T) {
	for _, summary := range []string{"funnel 5 x 10", "funnel 5 1e+15 10", "funnel 0 1000000 1", "token_bucket -1 1000000 1", "funnel 5 1000000 0", "funnel 5 1000000", "window 5 1000000 1"} {
		if f := parseFastLimit("api", summary); f.limit != nil {
			t.Errorf("%q is for the fast path: %+v", summary, f.limit)
		}
	}
	if f := parseFastLimit("api", "funnel 5 1000000 10"); f.limit == nil || f.skip.Load() != 0 {
		t.Error("a funnel is not for the fast path")
	}
}

// TestFastLimits_CopyInUse: calls that load a copy of a limit at the same time can pass the end of its
// skipped calls together. The fast path decides none of them.
func TestFastLimits_CopyInUse(t *testing.T) {
	s := &shared{}
	f := parseFastLimit("api", "funnel 5 1000000 10 paused")
	f.skip.Store(0) // the copy's last skipped call is under way
	s.fast.Store("api", f)
	if limits, err := s.fastLimits(t.Context(), []Need{{Limit: "api", Cost: 1}}); limits != nil || err != nil {
		t.Errorf("%v, %v, want none", limits, err)
	}
}

// TestLocal_ColdKeys: what counts nothing any more is dropped while calls go on, and looking at a
// key keeps nothing.
func TestLocal_ColdKeys(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	l := NewLocal(Options{Clock: func() time.Time { return now }})
	if err := l.Define(t.Context(), Limit{Name: "a", Kind: SlidingLog, Rate: PerMinute(5)}); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		n := 1
		if i >= 1000 {
			now, n = now.Add(time.Second), 0
		}
		if _, err := l.AllowN(t.Context(), "a", fmt.Sprint(i), n); err != nil {
			t.Fatal(err)
		}
	}
	if kept := len(l.backend.(*local).meters); kept != 0 {
		t.Errorf("%d meters are kept, want none", kept)
	}
}

// The fast path decides calls of its limits on both Redises.
func TestFastPath_Decides(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		l := New(rdb, Options{})
		if err := l.Define(t.Context(), Limit{Name: "api", Kind: Funnel, Rate: PerHour(1), Capacity: 2}); err != nil {
			t.Fatal(err)
		}
		needs := []Need{{Limit: "api", Cost: 1}}
		for i, c := range l.Internals().TryFast(t.Context(), [][]Need{needs, needs, needs}) {
			if c.Err != nil || !c.decided || c.Decision.OK() != (i < 2) {
				t.Errorf("job %d: %v, %v, decided %v", i+1, c.Decision, c.Err, c.decided)
			}
		}
	})
}
