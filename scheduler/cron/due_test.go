package cron

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
)

func TestMissedTicks(t *testing.T) {
	all := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for _, tc := range []struct {
		name   string
		change func(*Entry)
		back   int // the minute after 8:00 at which a process is there again
		want   []int
		missed bool // whether missed ticks are logged
	}{
		{"skip", nil, 30, []int{1, 9}, true},
		{"skip, the last one is timely", nil, 0, []int{1, 8, 9}, true},
		{"once", func(e *Entry) { e.Missed = MissedOnce }, 30, []int{1, 8, 9}, true},
		{"once, the last one is timely", func(e *Entry) { e.Missed = MissedOnce }, 0, []int{1, 8, 9}, true},
		{"all", func(e *Entry) { e.Missed = MissedAll }, 30, all, false},
		{"all, the last one is timely", func(e *Entry) { e.Missed = MissedAll }, 0, all, false},
		{"all up to 3", func(e *Entry) { e.Missed, e.MissedMax = MissedAll, 3 }, 30, []int{1, 6, 7, 8, 9}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				first := b.start(nil, hourly(tc.change))
				until(1, 30)
				first.end()
				until(8, tc.back)
				second := b.replica(nil, hourly(tc.change))
				var log strings.Builder
				second.log = slog.New(slog.NewTextHandler(&log, nil))
				catchUp := func() {
					for second.pass(context.Background()) == 0 { // ticks are due
					}
				}
				catchUp()
				until(9, 0)
				catchUp()
				b.wantTicks(tc.want...)
				said, want := log.String(), `msg="skipped missed ticks of a schedule" entry=sweep `
				if tc.missed != strings.Contains(said, want) || strings.Count(said, "\n") > 1 {
					t.Errorf("logged %q, want one line of missed ticks: %t", said, tc.missed)
				}
			})
		})
	}
}

// TestCatchUp_LeavesOthersOnTime: a schedule that catches up delays neither ticks of the others nor a
// stop.
func TestCatchUp_LeavesOthersOnTime(t *testing.T) {
	inBubble(t, func(b *bubble) {
		report := Entry{Name: "report", Cron: "* * * * *", Type: "report:send", Missed: MissedAll, MissedMax: 5000}
		entries := []Entry{report, hourly(nil)}
		first := b.start(nil, entries...)
		until(0, 30)
		first.end()
		until(2*24+8, 59)
		time.Sleep(50 * time.Second)
		before := len(b.q.ids())
		second := b.start(func(r *replica) { // some 3,400 ticks take an hour
			r.stall = func(*asynq.Task) time.Duration { return time.Second }
		}, entries...)
		time.Sleep(15 * time.Second)
		ids := b.q.ids()[before:]
		if at := slices.Index(ids, sweepIDs(2*24 + 9)[0]); at < 0 || len(ids) < 10 {
			b.Errorf("after 15 s of catching up: %d jobs, that of the other schedule at %d", len(ids), at)
		}
		second.end()
		third := b.start(nil, entries...)
		time.Sleep(time.Minute)
		third.end()
		reports := slices.DeleteFunc(b.q.ids(), func(id string) bool { return !strings.HasPrefix(id, "report@") })
		want := int(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Minute)
		if len(reports) != want || !slices.IsSorted(reports) {
			b.Errorf("%d reports, sorted is %t; want one for each of %d minutes in order", len(reports), slices.IsSorted(reports), want)
		}
	})
}

// TestNewestTicks_LongAgo: the work does not grow with the number of missed ticks, here six million.
func TestNewestTicks_LongAgo(t *testing.T) {
	s, err := newSchedule(Entry{Cron: "*/5 * * * * *"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC)
	got := s.newestTicks(now.AddDate(-1, 0, 0), now, 3)
	want := []time.Time{now.Add(-12 * time.Second), now.Add(-7 * time.Second), now.Add(-2 * time.Second)}
	if diff := cmp.Diff(want, got, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Error(diff)
	}
}

func TestDelay_CoversJitter(t *testing.T) {
	item := Entry{Name: "sweep", Jitter: 10 * time.Second}
	seen := map[time.Duration]int{}
	for i := range 2000 {
		seen[item.delay(fmt.Sprintf("sweep@%d", i*3600)).Truncate(time.Second)]++
	}
	for delay, n := range seen {
		if n < 100 || delay > item.Jitter || len(seen) != 11 {
			t.Errorf("%d of 2000 ticks have a delay of %s; want each of 0 to 10 s about 180 times", n, delay)
		}
	}
}
