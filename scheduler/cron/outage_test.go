package cron

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

func TestRun_RedisOutage_RunsMissedTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := startReplica(t, m, q, []Entry{hourly(func(e *Entry) { e.Missed = MissedAll })}, nil)
		until(1, 59)
		m.SetError("LOADING Redis is loading the dataset in memory")
		until(4, 20)
		m.SetError("")
		until(5, 30)
		m.FlushAll() // the replica still knows its last tick
		until(7, 30)
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1, 2, 3, 4, 5, 6, 7))
	})
}

// TestRun_RedisLosesTicks_TicksOnce is a failover to a replica that lags behind.
func TestRun_RedisLosesTicks_TicksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := startReplica(t, m, q, []Entry{hourly(func(e *Entry) { e.Missed = MissedAll })}, nil)
		until(1, 30)
		old := m.HGet("hg:{default}:cron:sweep", "last")
		until(3, 30)
		m.HSet("hg:{default}:cron:sweep", "last", old)
		until(5, 30)
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1, 2, 3, 4, 5))
	})
}

// TestRun_UnreadableState_LeavesOthers: an entry whose hash is malformed has no ticks and an error.
// It causes few calls, and does not delay the other entry.
func TestRun_UnreadableState_LeavesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		m.HSet("hg:{default}:cron:odd", "last", "yesterday")
		odd := hourly(func(e *Entry) { e.Name = "odd" })
		r := startReplica(t, m, q, []Entry{hourly(nil), odd}, nil)
		until(1, 30)
		if calls := r.calls.Load(); calls > 2400 {
			t.Errorf("%d calls in 90 minutes", calls)
		}
		_, err := r.List(t.Context(), 1)
		for _, want := range []string{"key hg:{default}:cron:odd: ", "yesterday", "DoneUntil of type int64"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		}
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1))
	})
}
