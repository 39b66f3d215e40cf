package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"pgregory.net/rapid"
)

func TestBackoffCeiling(t *testing.T) {
	for name, test := range map[string]struct {
		b    Backoff
		want string // after retries 0, 1, 2, 3, 40, 1000
	}{
		"zero value":     {Backoff{}, "[1s 2s 4s 8s 1h0m0s 1h0m0s]"},
		"linear":         {Backoff{Growth: GrowthLinear, Base: 10 * time.Second, Cap: time.Minute}, "[10s 20s 30s 40s 1m0s 1m0s]"},
		"constant":       {Backoff{Growth: GrowthConstant, Base: 5 * time.Second}, "[5s 5s 5s 5s 5s 5s]"},
		"base above cap": {Backoff{Base: time.Hour, Cap: time.Minute}, "[1m0s 1m0s 1m0s 1m0s 1m0s 1m0s]"},
	} {
		test.b.Jitter = JitterNone
		var got []time.Duration
		for _, n := range []int{0, 1, 2, 3, 40, 1000} {
			got = append(got, test.b.Delay(n))
		}
		if fmt.Sprint(got) != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
	}
}

func TestJitter_Range(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Growth: rapid.SampledFrom([]Growth{"", GrowthLinear, GrowthConstant}).Draw(t, "growth"),
			Base:   time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "base")),
			Cap:    time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "cap")),
		}
		n := rapid.IntRange(0, 100).Draw(t, "n")
		full := b.ceiling(n)
		low := map[Jitter]time.Duration{JitterFull: 0, JitterEqual: full / 2, JitterNone: full}
		for jitter, low := range low {
			b.Jitter = jitter
			if got := b.Delay(n); got < low || got > full {
				t.Fatalf("jitter %s: Delay(%d) = %s, want %s to %s", jitter, n, got, low, full)
			}
		}
	})
}

func TestRetryPolicyClasses(t *testing.T) {
	once := 1
	containing := func(text string) func(error) bool {
		return func(err error) bool { return strings.Contains(err.Error(), text) }
	}
	timedOut := func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
	p := RetryPolicy{
		Backoff: Backoff{Growth: GrowthConstant, Base: time.Second, Jitter: JitterNone},
		Classes: []ErrorClass{
			{Is: containing("429"), Backoff: Backoff{Growth: GrowthConstant, Base: time.Minute, Jitter: JitterNone}},
			{Is: containing("no such host"), MaxRetry: &once},
			{Is: timedOut, Backoff: Backoff{Growth: GrowthConstant, Base: time.Hour, Jitter: JitterNone}},
		},
	}
	if got := p.class(errors.New("answered 429")).Delay(3); got != time.Minute {
		t.Errorf("429: %s, want 1m", got)
	}
	if got := p.class(fmt.Errorf("late: %w", context.DeadlineExceeded)).Delay(3); got != time.Hour {
		t.Errorf("late: %s, want 1h", got)
	}
	if got := p.class(errors.New("boom")).Delay(3); got != time.Second {
		t.Errorf("boom: %s, want 1s", got)
	}
	a := attempt{retried: 1, maxRetry: 5, rule: Rule{Retry: &p}}
	if err := a.afterRun(t.Context(), errors.New("no such host")); !errors.Is(err, asynq.SkipRetry) || err.Error() != "no such host" {
		t.Errorf("no such host after a retry: %v, want archived, in these words", err)
	}
	if err := a.afterRun(t.Context(), errors.New("boom")); errors.Is(err, asynq.SkipRetry) {
		t.Errorf("boom after a retry: %v, want another", err)
	}
}
