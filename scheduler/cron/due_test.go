package cron

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/redistest"
)

func TestMissedTicks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Entry)
		back   int // the minute after 8:00 at which a process is there again
		want   []int
		missed string // as the log has it
	}{
		{"skip", nil, 30, []int{1, 9}, "7"},
		{"skip, the last one is timely", nil, 0, []int{1, 8, 9}, "6"},
		{"once", func(e *Entry) { e.Missed = MissedOnce }, 30, []int{1, 8, 9}, "6"},
		{"once, the last one is timely", func(e *Entry) { e.Missed = MissedOnce }, 0, []int{1, 8, 9}, "6"},
		{"all", func(e *Entry) { e.Missed = MissedAll }, 30, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, ""},
		{"all, the last one is timely", func(e *Entry) { e.Missed = MissedAll }, 0, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, ""},
		{"all up to 3", func(e *Entry) { e.Missed, e.MissedMax = MissedAll, 3 }, 30, []int{1, 6, 7, 8, 9}, "4"},
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
				second.pass(t.Context())
				until(9, 0)
				second.pass(t.Context())
				checkIDs(t, q.ids(), sweepIDs(tc.want...))
				said, want := log.String(), `msg="schedule missed ticks" entry=sweep ticks=`+tc.missed+" "
				if (tc.missed == "") != (said == "") || tc.missed != "" && (!strings.Contains(said, want) || strings.Count(said, "\n") != 1) {
					t.Errorf("logged %q, want one line of %q missed ticks", said, tc.missed)
				}
			})
		})
	}
}

// TestMissedForLong is about the work, which must not grow with the number of
// ticks that were missed: here some six million.
func TestMissedForLong(t *testing.T) {
	rule, err := newTimetable(Entry{Cron: "*/5 * * * * *", Seconds: true})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 2, 0, time.UTC)
	got := newestTicks(rule, now.AddDate(-1, 0, 0), now, 3)
	want := []time.Time{now.Add(-12 * time.Second), now.Add(-7 * time.Second), now.Add(-2 * time.Second)}
	if diff := cmp.Diff(want, got, cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Error(diff)
	}
	if n := countTicks(rule, now.AddDate(-1, 0, 0), want[2]); n != "1000 or more" {
		t.Errorf("%s were missed, want a bound", n)
	}
}
