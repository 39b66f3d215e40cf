package cron

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

func TestMissedTicks(t *testing.T) {
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
		{"all", func(e *Entry) { e.Missed = MissedAll }, 30, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, false},
		{"all, the last one is timely", func(e *Entry) { e.Missed = MissedAll }, 0, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, false},
		{"all up to 3", func(e *Entry) { e.Missed, e.MissedMax = MissedAll, 3 }, 30, []int{1, 6, 7, 8, 9}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := redistest.Mini(t)
				q := newJobQueue()
				entries := []Entry{hourly(tc.change)}
				first := startReplica(t, m, q, entries, nil)
				until(1, 30)
				first.end()
				until(8, tc.back)
				second := newReplica(t, m, q, entries, nil)
				var log strings.Builder
				second.log = slog.New(slog.NewTextHandler(&log, nil))
				second.catchUp()
				until(9, 0)
				second.catchUp()
				checkIDs(t, q.ids(), sweepIDs(tc.want...))
				said, want := log.String(), `msg="skipped missed ticks of a schedule" entry=sweep `
				if tc.missed != strings.Contains(said, want) || strings.Count(said, "\n") > 1 {
					t.Errorf("logged %q, want one line of missed ticks: %t", said, tc.missed)
				}
			})
		})
	}
}

// catchUp runs passes until no tick is due, and returns the time until the next one.
func (r *replica) catchUp() (wait time.Duration) {
	for wait == 0 {
		wait = r.pass(context.Background())
	}
	return wait
}

// A schedule that catches up must not delay ticks of the others, a stop or a pause.
func TestCatchUp_LeavesOthersOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		report := Entry{Name: "report", Cron: "* * * * *", Type: "report:send", Missed: MissedAll, MissedMax: 5000}
		entries := []Entry{report, hourly(nil)}
		first := startReplica(t, m, q, entries, nil)
		until(0, 30)
		first.end()
		time.Sleep(time.Until(time.Date(2000, 1, 3, 8, 59, 50, 0, time.UTC)))
		before := len(q.ids())
		slow := func(r *replica) { // some 3,400 ticks take an hour
			r.stall = func(*asynq.Task) time.Duration { return time.Second }
		}
		second := startReplica(t, m, q, entries, slow)
		time.Sleep(15 * time.Second)
		ids := q.ids()[before:]
		if at := slices.Index(ids, "sweep@"+fmt.Sprint(time.Date(2000, 1, 3, 9, 0, 0, 0, time.UTC).Unix())); at < 0 || len(ids) < 10 {
			t.Errorf("after 15 s of catching up: %d jobs, that of the other schedule at %d", len(ids), at)
		}
		second.end()
		third := startReplica(t, m, q, entries, nil)
		time.Sleep(time.Minute)
		third.end()
		var reports []string
		for _, id := range q.ids() {
			if strings.HasPrefix(id, "report@") {
				reports = append(reports, id)
			}
		}
		want := int(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) / time.Minute)
		if len(reports) != want || !slices.IsSorted(reports) {
			t.Errorf("%d reports, sorted is %t; want one for each of %d minutes in order", len(reports), slices.IsSorted(reports), want)
		}
	})
}

// TestNewestTicks_LongAgo: the work does not grow with the number of missed ticks, here six million.
func TestNewestTicks_LongAgo(t *testing.T) {
	rule, err := newTimetable(Entry{Cron: "*/5 * * * * *"})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC)
	got := newestTicks(rule, now.AddDate(-1, 0, 0), now, 3)
	want := []time.Time{now.Add(-12 * time.Second), now.Add(-7 * time.Second), now.Add(-2 * time.Second)}
	if diff := cmp.Diff(want, got, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Error(diff)
	}
}
