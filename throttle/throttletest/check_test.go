package throttletest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/throttle"
)

// at is a history of single permits.
func at(times ...int64) []Admission {
	history := make([]Admission, len(times))
	for i, t := range times {
		history[i] = Admission{At: t, Cost: 1}
	}
	return history
}

// instants is a history of single permits at moments such as
// "2026-11-01T00:30:00-04:00".
func instants(t *testing.T, texts ...string) []Admission {
	t.Helper()
	var history []Admission
	for _, text := range texts {
		moment, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		history = append(history, Admission{At: moment.UnixMicro(), Cost: 1})
	}
	return history
}

func us(n int) time.Duration { return time.Duration(n) * time.Microsecond }

func TestCheck_Rates(t *testing.T) {
	// Three permits in ten microseconds, so one in 3⅓.
	funnel := throttle.Limit{Kind: throttle.Funnel, Rate: throttle.Rate{N: 3, Per: us(10)}, Capacity: 2}
	spacing := throttle.Limit{Kind: throttle.TokenBucket, Rate: throttle.Rate{N: 1, Per: us(5)}}
	margin := throttle.Limit{Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: us(5)}, Margin: us(2)}
	log := throttle.Limit{Kind: throttle.SlidingLog, Rate: throttle.Rate{N: 2, Per: us(10)}}
	window := throttle.Limit{Kind: throttle.SlidingWindow, Rate: throttle.Rate{N: 2, Per: us(10)}, Margin: us(3)}
	century := throttle.Limit{Kind: throttle.Funnel, Rate: throttle.Rate{N: 10_000_000, Per: 100 * 365 * throttle.Day}, Capacity: 10_000_000}
	for _, tt := range []struct {
		name    string
		limit   throttle.Limit
		history []Admission
		over    int
	}{
		{"nothing", funnel, nil, 0},
		{"capacity at once", funnel, at(0, 0), 0},
		{"one above the capacity at once", funnel, at(0, 0, 0), 1},
		{"a fraction early", funnel, at(0, 0, 3), 1},
		{"just in time", funnel, at(0, 0, 4), 0},
		{"the fraction counts later", funnel, at(0, 0, 4, 7, 10), 0},
		{"the fraction is gone later", funnel, at(0, 0, 4, 7, 9), 1},
		{"cost", funnel, []Admission{{At: 0, Cost: 2}, {At: 7, Cost: 2}}, 0},
		{"cost early", funnel, []Admission{{At: 0, Cost: 2}, {At: 6, Cost: 2}}, 1},
		{"cost above the capacity", funnel, []Admission{{At: 0, Cost: 3}}, 1},
		{"any order", funnel, at(3, 0, 0), 1},
		{"a window in the middle", funnel, at(0, 100, 100, 100, 200), 1},
		{"idle time is not saved", funnel, at(0, 1000, 1000, 1000), 1},
		{"capacity 1 when none is said", spacing, at(0, 5, 10), 0},
		{"spacing too short", spacing, at(0, 5, 9), 1},
		{"margin", margin, at(0, 7, 14), 0},
		{"margin not kept", margin, at(0, 5), 1},
		{"products beyond 64 bits", century, []Admission{{At: 1 << 50, Cost: 10_000_000}}, 0},
		{"products beyond 64 bits, one more", century, []Admission{{At: 1 << 50, Cost: 10_000_000}, {At: 1<<50 + 315_359_999, Cost: 1}}, 1},
		{"products beyond 64 bits, in time", century, []Admission{{At: 1 << 50, Cost: 10_000_000}, {At: 1<<50 + 315_360_000, Cost: 1}}, 0},
		{"window full", log, at(0, 9, 10, 19), 0},
		{"window over", log, at(0, 8, 9), 1},
		{"window over twice", log, at(0, 1, 2, 3, 30), 2},
		{"window cost", log, []Admission{{At: 0, Cost: 2}, {At: 9, Cost: 1}}, 1},
		{"window margin", window, at(0, 0, 13), 0},
		{"window margin not kept", window, at(0, 0, 12), 1},
	} {
		t.Run(tt.name, func(t *testing.T) { checkOver(t, tt.limit, tt.history, tt.over) })
	}
}

func TestCheck_FixedWindows(t *testing.T) {
	fixed := func(rate throttle.Rate, zone string) throttle.Limit {
		return throttle.Limit{Kind: throttle.FixedWindow, Rate: rate, Zone: zone}
	}
	margin := fixed(throttle.PerHour(5), "")
	margin.Margin = time.Second
	const newYork = "America/New_York"
	for _, tt := range []struct {
		name  string
		limit throttle.Limit
		times []string
		over  int
	}{
		{"both sides of a minute", fixed(throttle.PerMinute(1), ""), []string{"2026-11-20T12:00:59.999999Z", "2026-11-20T12:01:00Z"}, 0},
		{"one minute", fixed(throttle.PerMinute(1), ""), []string{"2026-11-20T12:00:00Z", "2026-11-20T12:00:59.999999Z"}, 1},
		{"before 1970", fixed(throttle.PerMinute(1), ""), []string{"1969-12-31T23:59:59Z", "1970-01-01T00:00:01Z"}, 0},
		{"a day of 25 hours", fixed(throttle.PerDay(1), newYork), []string{"2026-11-01T00:00:00-04:00", "2026-11-01T23:59:59-05:00"}, 1},
		{"the day after it", fixed(throttle.PerDay(1), newYork), []string{"2026-11-01T23:59:59-05:00", "2026-11-02T00:00:00-05:00"}, 0},
		{"a day of 23 hours", fixed(throttle.PerDay(1), newYork), []string{"2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00"}, 0},
		{"the day in UTC", fixed(throttle.PerDay(1), ""), []string{"2026-11-20T00:00:00Z", "2026-11-20T23:59:59Z"}, 1},
		{"an hour gone through twice", fixed(throttle.PerHour(1), newYork), []string{"2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"}, 1},
		{"Sunday and Monday", fixed(throttle.Rate{N: 1, Per: throttle.Week}, ""), []string{"2026-11-22T23:59:59Z", "2026-11-23T00:00:00Z"}, 0},
		{"Monday and Sunday", fixed(throttle.Rate{N: 1, Per: throttle.Week}, ""), []string{"2026-11-16T00:00:00Z", "2026-11-22T23:59:59Z"}, 1},
		{"a month", fixed(throttle.Rate{N: 1, Per: throttle.Month}, ""), []string{"2026-11-01T00:00:00Z", "2026-11-30T23:59:59Z"}, 1},
		{"two months", fixed(throttle.Rate{N: 1, Per: throttle.Month}, ""), []string{"2026-11-30T23:59:59Z", "2026-12-01T00:00:00Z"}, 0},
		{"open", margin, []string{"2026-11-20T12:00:01Z"}, 0},
		{"open to the last", margin, []string{"2026-11-20T12:59:58.999999Z"}, 0},
		{"closed", margin, []string{"2026-11-20T12:59:59Z"}, 1},
		{"not open yet", margin, []string{"2026-11-20T12:00:00.999999Z"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) { checkOver(t, tt.limit, instants(t, tt.times...), tt.over) })
	}
}

func TestCheck_Concurrency(t *testing.T) {
	limit := throttle.Limit{Kind: throttle.Concurrency, Capacity: 2}
	for _, tt := range []struct {
		name    string
		history []Admission
		over    int
	}{
		{"one after the other", []Admission{{At: 0, Cost: 2, Until: 10}, {At: 10, Cost: 2, Until: 20}}, 0},
		{"overlap", []Admission{{At: 0, Cost: 2, Until: 11}, {At: 10, Cost: 1, Until: 20}}, 1},
		{"still held", []Admission{{At: 0, Cost: 2}, {At: 1000, Cost: 1}}, 1},
		{"a long one beside short ones", []Admission{{At: 0, Cost: 1, Until: 100}, {At: 0, Cost: 1, Until: 5}, {At: 5, Cost: 1, Until: 9}}, 0},
		{"above the capacity", []Admission{{At: 0, Cost: 3, Until: 1}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) { checkOver(t, limit, tt.history, tt.over) })
	}
}

// TestCheckStarts: calls that leave a little after their permits were taken are judged as
// strictly as that allows.
func TestCheckStarts(t *testing.T) {
	funnel := throttle.Limit{Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: us(5)}, Capacity: 2}
	log := throttle.Limit{Kind: throttle.SlidingLog, Rate: throttle.Rate{N: 2, Per: us(10)}}
	aligned := throttle.Limit{Kind: throttle.FixedWindow, Rate: throttle.Rate{N: 2, Per: us(10)}}
	slots := throttle.Limit{Kind: throttle.Concurrency, Capacity: 1}
	for _, tt := range []struct {
		name   string
		limit  throttle.Limit
		starts []Admission
		late   int
		over   bool
	}{
		{"a funnel, as late as can be", funnel, at(5, 5, 5), 5, false},
		{"a funnel, too late", funnel, at(5, 5, 5), 4, true},
		{"a log", log, at(3, 3, 10, 10), 3, false},
		{"a log, too late", log, at(3, 3, 10, 10), 2, true},
		{"a log, later than a period", log, at(12, 12, 12, 12), 12, false},
		{"a log, later than a period, too many", log, at(12, 12, 12, 12, 12), 12, true},
		{"a window", aligned, at(12, 12, 12, 12), 3, false},
		{"a window that was not used before", aligned, at(19, 19, 20, 22, 22), 3, true},
		{"two windows", aligned, at(9, 9, 12, 12, 13), 3, true},
		{"two windows, within", aligned, at(9, 12, 12, 13), 3, false},
		{"a window after one with a debt", aligned, append(at(14, 14), Admission{At: 15, Cost: 1, Debt: true}, Admission{At: 20, Cost: 2}), 3, false},
		{"a window after one with a debt, too many", aligned, append(at(14, 14), Admission{At: 15, Cost: 1, Debt: true}, Admission{At: 20, Cost: 3}), 3, true},
		{"a window, too late", aligned, at(13, 13, 13), 3, true},
		{"slots are held or not", slots, []Admission{{At: 0, Cost: 1, Until: 6}, {At: 5, Cost: 1, Until: 7}}, 3, true},
	} {
		if err := CheckStarts(tt.limit, tt.starts, us(tt.late)); (err != nil) != tt.over {
			t.Errorf("%s: %v, want an error %v", tt.name, err, tt.over)
		}
	}
}

func checkOver(t *testing.T, limit throttle.Limit, history []Admission, over int) {
	t.Helper()
	if got := Over(limit, history); got != over {
		t.Errorf("%d over, want %d", got, over)
	}
	if err := Check(limit, history); (err != nil) != (over > 0) {
		t.Errorf("Check: %v, want an error for %d over", err, over)
	}
}

func TestCheck_Message(t *testing.T) {
	limit := throttle.Limit{Name: "api", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(1)}
	err := Check(limit, instants(t, "2026-11-20T12:00:00Z", "2026-11-20T12:00:00.5Z"))
	want := "limit api (sliding_log 1/s): 2 permits from 2026-11-20 12:00:00.000000 to 2026-11-20 12:00:00.500000, within 1s; at most 1"
	if fmt.Sprint(err) != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := Check(throttle.Limit{Kind: "drizzle"}, nil); err == nil || !strings.Contains(err.Error(), "drizzle") {
		t.Errorf("an unknown kind: %v", err)
	}
}

// TestCheck_AllPairs holds the one pass against the definition.
func TestCheck_AllPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := throttle.Limit{
			Kind:     throttle.Funnel,
			Rate:     throttle.Rate{N: rapid.IntRange(1, 5).Draw(t, "n"), Per: us(rapid.IntRange(1, 20).Draw(t, "per"))},
			Capacity: rapid.IntRange(1, 4).Draw(t, "capacity"),
		}
		var history []Admission
		now := int64(0)
		for range rapid.IntRange(0, 12).Draw(t, "length") {
			now += rapid.Int64Range(0, 12).Draw(t, "wait")
			history = append(history, Admission{At: now, Cost: rapid.IntRange(1, 3).Draw(t, "cost")})
		}
		if got, want := Over(limit, history), overPairs(limit, history); got != want {
			t.Fatalf("%d over, by all pairs %d: %v", got, want, history)
		}
	})
}

// overPairs counts the ends of windows that hold too much, by looking at all.
func overPairs(limit throttle.Limit, history []Admission) (over int) {
	for j := range history {
		for i := range j + 1 {
			sum := int64(0)
			for _, a := range history[i : j+1] {
				sum += int64(a.Cost)
			}
			allowed := int64(limit.Capacity)*limit.Rate.Per.Microseconds() + int64(limit.Rate.N)*(history[j].At-history[i].At)
			if sum*limit.Rate.Per.Microseconds() > allowed {
				over++
				break
			}
		}
	}
	return over
}
