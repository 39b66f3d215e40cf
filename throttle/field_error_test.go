package throttle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// fieldErrors is what Validate joined.
func fieldErrors(t *testing.T, err error) (found []throttle.FieldError) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v is no joined error", err)
	}
	for _, err := range joined.Unwrap() {
		field, ok := errors.AsType[*throttle.FieldError](err)
		if !ok {
			t.Fatalf("%v has no field", err)
		}
		found = append(found, *field)
	}
	return found
}

func TestValidate_Fields(t *testing.T) {
	const name, century = "want 1 to 100 letters, digits, or _ . : -", 100 * 365 * throttle.Day
	for _, tt := range []struct {
		limit throttle.Limit
		want  []throttle.FieldError
	}{
		{throttle.Limit{Name: "a b", Kind: "drizzle", Rate: throttle.PerSecond(1)}, []throttle.FieldError{
			{Field: "name", Value: `"a b"`, Want: name},
			{Field: "kind", Value: `"drizzle"`, Want: "want one of funnel, token_bucket, fixed_window, sliding_log, sliding_window, concurrency"},
		}},
		{throttle.Limit{Name: "a", Kind: throttle.Concurrency, Rate: throttle.PerSecond(1), Lease: time.Millisecond}, []throttle.FieldError{
			{Field: "capacity", Value: "0", Want: "want how many may run at once, 1 to 10000000"},
			{Field: "rate", Value: "1/s", Want: "a concurrency limit has no rate, only a capacity"},
			{Field: "lease", Value: "1ms", Want: "want at least 1s"},
		}},
		{throttle.Limit{Name: "a", Kind: throttle.Concurrency, Capacity: 1, Lease: century + 1}, []throttle.FieldError{
			{Field: "lease", Value: "36500d1ns", Want: "want at most a hundred years"},
		}},
		{throttle.Limit{Name: "a", Kind: throttle.Funnel, Capacity: -1, Apps: []string{"ok", "x,y"}}, []throttle.FieldError{
			{Field: "capacity", Value: "-1", Want: "want 1 to 10000000"},
			{Field: "rate", Value: "none", Want: "want 1 to 10000000 permits per period"},
			{Field: "apps", Value: `"x,y"`, Want: name},
		}},
		{throttle.Limit{Name: "a", Kind: throttle.SlidingLog, Rate: throttle.PerDay(100_001), Zone: "Mars/Olympus", Margin: -1}, []throttle.FieldError{
			{Field: "rate", Value: "100001/day", Want: "a sliding_log keeps every time, at most 100000; use sliding_window"},
			{Field: "margin", Value: "-1ns", Want: "want whole microseconds, from 0 to less than the period 24h"},
			{Field: "zone", Value: `"Mars/Olympus"`, Want: "only a fixed_window limit follows a calendar"},
			{Field: "zone", Value: `"Mars/Olympus"`, Want: "want an IANA time zone such as UTC or America/New_York"},
		}},
	} {
		err := tt.limit.Validate()
		expect(t, tt.limit.String(), fieldErrors(t, err), tt.want)
	}
	err := throttle.Limit{Name: "a", Kind: throttle.Concurrency, Capacity: -3}.Validate()
	expect(t, "in words", err.Error(), "capacity -3: want how many may run at once, 1 to 10000000")
}

// Durations of a limit are shown with days, as they are read.
func TestLimitString_HasDays(t *testing.T) {
	l := throttle.Limit{Kind: throttle.Concurrency, Capacity: 1, Lease: 7 * throttle.Day, MaxBlock: 2 * throttle.Day}
	if got := l.String(); got != "concurrency capacity 1 lease 7d max_block 2d" {
		t.Error(got)
	}
}
