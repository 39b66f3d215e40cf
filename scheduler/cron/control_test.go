package cron

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

func TestPause_StopsAllReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		entries := []Entry{hourly(func(e *Entry) { e.Missed = MissedAll })}
		a, b := startReplica(t, m, q, entries, nil), startReplica(t, m, q, entries, nil)
		operator := newReplica(t, m, q, entries, nil)
		until(2, 30)
		if err := operator.Pause(t.Context(), "sweep"); err != nil {
			t.Fatal(err)
		}
		until(3, 30)
		if err := operator.Pause(t.Context(), "sweep"); err != nil {
			t.Fatal("pausing twice:", err)
		}
		b.end() // a pause outlives restarts
		b = startReplica(t, m, q, entries, nil)
		list, err := operator.List(t.Context(), 3)
		if err != nil || !list[0].Paused || len(list[0].Next) != 0 {
			t.Errorf("while paused: %+v, %v", list, err)
		}
		until(5, 30)
		for range 2 { // the second has nothing to do
			if err := operator.Resume(t.Context(), "sweep"); err != nil {
				t.Fatal(err)
			}
		}
		until(7, 30)
		if err := operator.Pause(t.Context(), "sweep"); err != nil {
			t.Fatal("pausing again:", err)
		}
		until(9, 30)
		a.end()
		b.end()
		checkIDs(t, q.ids(), sweepIDs(1, 2, 6, 7))
	})
}

// TestPause_DisabledEntry_Stays pauses an entry before or after it is disabled. The state is kept for
// longer than that of a disabled entry which is not paused.
func TestPause_DisabledEntry_Stays(t *testing.T) {
	off := hourly(func(e *Entry) { e.Disabled = true })
	for _, when := range []string{"before", "after"} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := redistest.Mini(t)
			q := newJobQueue()
			r := newReplica(t, m, q, []Entry{hourly(nil)}, nil)
			pass := func(after time.Duration) {
				time.Sleep(after)
				r.pass(t.Context())
			}
			pass(0)
			steps := []func() error{
				func() error { return r.Pause(t.Context(), "sweep") },
				func() error { return r.Set([]Entry{off}) },
			}
			if when == "after" {
				slices.Reverse(steps)
			}
			for _, do := range steps {
				if err := do(); err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
			}
			time.Sleep(60 * day)
			if err := r.Set([]Entry{hourly(nil)}); err != nil {
				t.Fatal(err)
			}
			pass(0)
			pass(time.Hour)
			if list, err := r.List(t.Context(), 1); err != nil || !list[0].Paused {
				t.Errorf("paused %s it was disabled: %+v, %v; want it paused still", when, list, err)
			}
			checkIDs(t, q.ids(), nil)
		})
	}
}

// TestResume_OtherLine_LeavesTicks: a Resume by a replica with another cron line leaves the ticks
// before the pause to replicas with the old one.
func TestResume_OtherLine_LeavesTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := startReplica(t, m, q, []Entry{hourly(nil)}, nil)
		until(1, 30)
		operator := newReplica(t, m, q, []Entry{hourly(func(e *Entry) {
			e.Cron, e.Missed = "*/10 * * * *", MissedAll
		})}, nil)
		if err := operator.Pause(t.Context(), "sweep"); err != nil {
			t.Fatal(err)
		}
		until(2, 30)
		if err := operator.Resume(t.Context(), "sweep"); err != nil {
			t.Fatal(err)
		}
		if spec := m.HGet("hg:{default}:cron:sweep", "spec"); spec != "UTC 0 * * * *" {
			t.Errorf("the state says %q after a Resume", spec)
		}
		until(3, 30)
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1, 3))
	})
}
