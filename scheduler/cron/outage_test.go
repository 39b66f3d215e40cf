package cron

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

func TestRedisGoneAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := startReplica(t, m, q, []Entry{hourly(func(e *Entry) { e.Missed = MissedAll })}, nil)
		until(1, 59)
		m.SetError("LOADING Redis is loading the dataset in memory")
		until(4, 20)
		m.SetError("")
		until(5, 30)
		m.FlushAll() // it lost its data: the replica still knows
		until(7, 30)
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1, 2, 3, 4, 5, 6, 7))
	})
}

// TestRedisForgetsTheLastTicks is a failover to a replica that lags behind.
func TestRedisForgetsTheLastTicks(t *testing.T) {
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

// TestClockWasAhead is a failover to a Redis whose clock is a year ahead, and
// back. The entry must not be silent for a year, whichever replica lives on.
func TestClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		a := startReplica(t, m, q, []Entry{hourly(nil)}, nil)
		until(1, 30)
		m.SetTime(time.Now().AddDate(1, 0, 0))
		until(1, 37) // so that b is first to see each change of the clock, and a second
		b := startReplica(t, m, q, []Entry{hourly(nil)}, nil)
		until(2, 31)
		m.SetTime(time.Time{})
		until(4, 30)
		b.end()
		until(5, 30)
		a.end()
		ids := q.ids()
		if len(ids) < 3 {
			t.Fatalf("enqueued %v", ids)
		}
		checkIDs(t, ids[len(ids)-3:], sweepIDs(3, 4, 5))
	})
}

// TestStateOfAnother holds up an entry whose hash is not as we write it, and
// says so; it must neither ask without end nor hold up the other.
func TestStateOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		m.HSet("hg:{default}:cron:odd", "last", "yesterday")
		odd := hourly(func(e *Entry) { e.Name = "odd" })
		r := startReplica(t, m, q, []Entry{hourly(nil), odd}, nil)
		until(1, 30)
		if calls := r.calls.Load(); calls > 600 {
			t.Errorf("%d calls in 90 minutes", calls)
		}
		const want = `key hg:{default}:cron:odd: field last is "yesterday", want a whole number`
		if _, err := r.List(t.Context(), 1); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1))
	})
}
