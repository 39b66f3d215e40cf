package cron

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestRun_CrashAtEachCall_TicksOnce lets a replica die at each call around a tick, before or after
// the call's effect. The tick is enqueued once, whichever replica runs next.
func TestRun_CrashAtEachCall_TicksOnce(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for call := 1; call <= 12; call++ {
			synctest.Test(t, func(t *testing.T) {
				m, _ := redistest.Mini(t)
				q := newJobQueue()
				entries := []Entry{hourly(func(e *Entry) { e.Missed = MissedAll })}
				first := startReplica(t, m, q, entries, func(r *replica) { r.lost = lost })
				until(0, 59)
				first.dies.Store(first.calls.Load() + int64(call))
				until(1, 1)
				first.end()
				second := startReplica(t, m, q, entries, nil)
				until(2, 1)
				second.end()
				checkIDs(t, q.ids(), sweepIDs(1, 2))
			})
		}
	}
}

// TestRun_StalledReplica_TicksOnce stalls a replica just before it enqueues a tick. Another replica
// enqueues the tick, the job is done, and then the stalled replica continues.
func TestRun_StalledReplica_TicksOnce(t *testing.T) {
	for _, stall := range []time.Duration{2 * time.Second, 20 * time.Second, 4 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := redistest.Mini(t)
			q := newJobQueue()
			var all []*replica
			var enqueues atomic.Int32
			for range 3 {
				all = append(all, startReplica(t, m, q, []Entry{hourly(nil)}, func(r *replica) {
					r.stall = func(*asynq.Task) time.Duration {
						if enqueues.Add(1) == 1 {
							return stall
						}
						return 0
					}
				}))
			}
			until(3, 30)
			for _, r := range all {
				r.end()
			}
			checkIDs(t, q.ids(), sweepIDs(1, 2, 3))
		})
	}
}

// A replica that skipped a tick is corrected by a replica that enqueued it.
func TestMove_CountsATickOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		r := newReplica(t, m, newJobQueue(), []Entry{hourly(nil)}, nil)
		tick := time.Now().Truncate(time.Hour)
		for _, outcome := range []string{"skipped: still running", "enqueued", "enqueued", "skipped: missed"} {
			job := ""
			if outcome == "enqueued" {
				job = "sweep@1 default"
			}
			if _, err := r.advance(t.Context(), "sweep", tick, "UTC 0 * * * *", outcome, job); err != nil {
				t.Fatal(err)
			}
		}
		list, err := r.List(t.Context(), 0)
		if s := list[0]; err != nil || s.Outcome != "enqueued" || s.Enqueued+s.Skipped != 1 {
			t.Errorf("%+v, %v; want one tick that was enqueued", s, err)
		}
	})
}
