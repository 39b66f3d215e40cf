package cron

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/redistest"
)

// TestCrashAtEveryCall lets a replica die at each of the calls that it makes
// around a tick, before or after the call has had its effect. Whoever comes
// later, the tick is enqueued once.
func TestCrashAtEveryCall(t *testing.T) {
	crashes := 0
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
				if m.HGet("hg:{default}:cron:sweep", "intent") != "" {
					crashes++
				}
				second := startReplica(t, m, q, entries, nil)
				until(2, 1)
				second.end()
				checkIDs(t, q.ids(), sweepIDs(1, 2))
			})
		}
	}
	if crashes < 3 {
		t.Errorf("only %d of the crashes left a tick half done", crashes)
	}
	t.Logf("%d crashes left a tick half done", crashes)
}

// TestNobodyForLong is TestCrashAtEveryCall where nobody comes until the id of a job
// that was done is free again, because all have died or Redis is away. Nobody knows then
// whether the tick was enqueued: it is once more where missed ticks run, and else not.
func TestNobodyForLong(t *testing.T) {
	for _, missed := range []Missed{MissedSkip, MissedAll} {
		times := map[int]int{} // how often the tick was enqueued, and in how many cases
		for i := range 24 {
			call, lost, dies := 1+i%6, i/6%2 == 0, i < 12
			synctest.Test(t, func(t *testing.T) {
				m, _ := redistest.Mini(t)
				q := newJobQueue()
				entries := []Entry{hourly(func(e *Entry) { e.Missed = missed })}
				r := startReplica(t, m, q, entries, func(r *replica) { r.lost = lost })
				until(0, 59)
				r.dies.Store(r.calls.Load() + int64(call))
				until(1, 20)
				if dies {
					r.end()
					r = startReplica(t, m, q, entries, nil)
				} else {
					r.dies.Store(0)
				}
				until(2, 1)
				r.end()
				times[q.added[sweepIDs(1)[0]]]++
				if n := q.added[sweepIDs(2)[0]]; n != 1 {
					t.Errorf("missed %s, call %d: the tick after that was enqueued %d times", missed, call, n)
				}
			})
		}
		if missed == MissedSkip && (times[0] == 0 || times[0]+times[1] < 24) || missed == MissedAll && (times[0] > 0 || times[1] == 0) {
			t.Errorf("missed %s: enqueued so often: %v", missed, times)
		}
	}
}

// TestStalledReplica freezes the replica that has won a tick just before it
// enqueues: the others do it in its place, the job is done, and then it wakes.
func TestStalledReplica(t *testing.T) {
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
			if n := enqueues.Load(); (n > 3) != (stall > helpAfter) {
				t.Errorf("3 ticks were enqueued in %d tries, with a stall of %s", n, stall)
			}
		})
	}
}

// TestFrozenAtEveryCall lets a replica freeze before each of the calls to Redis
// that it makes around a tick, for longer than the job's id is kept.
func TestFrozenAtEveryCall(t *testing.T) {
	for call := 1; call <= 6; call++ {
		synctest.Test(t, func(t *testing.T) {
			m, _ := redistest.Mini(t)
			q := newJobQueue()
			entries := []Entry{hourly(func(e *Entry) { e.Missed = MissedAll })}
			frozen := startReplica(t, m, q, entries, nil)
			until(0, 59)
			frozen.freezes.Store(frozen.calls.Load() + int64(call))
			until(1, 1)
			other := startReplica(t, m, q, entries, nil)
			until(3, 30)
			frozen.end()
			other.end()
			checkIDs(t, q.ids(), sweepIDs(1, 2, 3))
		})
	}
}

func TestMoveComparesLastAndIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		r := newReplica(t, m, newJobQueue(), nil, nil)
		move := func(from, to state, want bool) {
			t.Helper()
			v := view{state: from}
			moved, err := r.move(t.Context(), &schedule{entry: Entry{Name: "sweep"}}, &v, to)
			if moved != want || err != nil || moved != (v.state == to) {
				t.Errorf("moved is %v, %v, to %+v; want %v", moved, err, v.state, want)
			}
		}
		var none state
		begun := state{last: time.Unix(100, 0)}
		intends := state{last: begun.last, intent: time.Unix(160, 0)}
		done := state{last: time.Unix(160, 0)}
		move(none, begun, true)
		move(none, done, false)
		move(begun, intends, true)
		move(begun, done, false)
		move(done, begun, false)
		move(intends, done, true)
		if got := m.HGet("hg:{default}:cron:sweep", "last"); got != "160" {
			t.Errorf("last is %s", got)
		}
	})
}
