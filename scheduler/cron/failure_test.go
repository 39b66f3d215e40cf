package cron

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestRun_CrashAtEachCall_TicksOnce lets a replica die at each call around a tick, before or after
// the call's effect. The tick is enqueued once, whichever replica runs next.
func TestRun_CrashAtEachCall_TicksOnce(t *testing.T) {
	all := hourly(func(e *Entry) { e.Missed = MissedAll })
	for _, lost := range []bool{false, true} {
		for call := range int64(12) {
			inBubble(t, func(b *bubble) {
				first := b.start(func(r *replica) { r.lost = lost }, all)
				until(0, 59)
				first.dies.Store(first.calls.Load() + 1 + call)
				until(1, 1)
				first.end()
				b.start(nil, all)
				until(2, 1)
				b.wantTicks(1, 2)
			})
		}
	}
}

// TestRun_StalledReplica_TicksOnce stalls a replica just before it enqueues a tick. Another replica
// enqueues the tick, the job is done, and then the stalled replica continues.
func TestRun_StalledReplica_TicksOnce(t *testing.T) {
	for _, stall := range []time.Duration{2 * time.Second, 20 * time.Second, 4 * time.Minute} {
		inBubble(t, func(b *bubble) {
			var enqueues atomic.Int32
			for range 3 {
				b.start(func(r *replica) {
					r.stall = func(*asynq.Task) time.Duration {
						if enqueues.Add(1) == 1 {
							return stall
						}
						return 0
					}
				}, hourly(nil))
			}
			until(3, 30)
			b.wantTicks(1, 2, 3)
		})
	}
}

// TestRun_UnreliableReplicas_TickOnce: three replicas see clocks up to five seconds apart, and some of
// their calls fail before or after the effect. Each tick is enqueued once, and no replica asks Redis in
// a busy loop until its clock has caught up.
func TestRun_UnreliableReplicas_TickOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		until(0, 30)
		for i := range 3 {
			b.start(func(r *replica) {
				r.skew, r.faults = time.Duration(i-1)*2500*time.Millisecond, 50
				r.random = rand.New(rand.NewPCG(uint64(i), 0))
			}, hourly(func(e *Entry) { e.Missed = MissedAll }))
		}
		var want []int
		for hour := range 60 {
			want = append(want, hour+1)
		}
		until(60, 30)
		b.wantTicks(want...)
		for _, r := range b.started {
			if calls := r.calls.Load(); calls > 1500 {
				b.Errorf("%d calls in 60 hours", calls)
			}
		}
	})
}

// TestAdvance_CountsATickOnce: a replica that skipped a tick is corrected by a replica that enqueued
// it.
func TestAdvance_CountsATickOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.replica(nil, hourly(nil))
		for _, outcome := range []string{"skipped: job sweep@1 is active", "enqueued", "enqueued", "skipped: missed"} {
			job := ""
			if outcome == "enqueued" {
				job = "sweep@1 default"
			}
			_, err := r.advance(b.Context(), "sweep", time.Now(), "UTC 0 * * * *", outcome, job)
			b.must(err)
		}
		if s := b.list(r); s.Outcome != "enqueued" || s.Enqueued+s.Skipped != 1 {
			b.Errorf("%+v; want one tick that was enqueued", s)
		}
	})
}

// TestRun_RedisOutage_RunsMissedTicks: after an outage, a flush, and a failover to a replica that
// lags behind, each tick was enqueued once.
func TestRun_RedisOutage_RunsMissedTicks(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start(nil, hourly(func(e *Entry) { e.Missed = MissedAll }))
		until(1, 59)
		b.m.SetError("LOADING Redis is loading the dataset in memory")
		until(4, 20)
		b.m.SetError("")
		until(5, 30)
		b.m.FlushAll() // the replica still knows its last tick
		until(7, 30)
		old := b.m.HGet(sweepKey, "last")
		until(9, 30)
		b.m.HSet(sweepKey, "last", old)
		until(11, 30)
		b.wantTicks(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	})
}

// TestRun_UnreadableState_LeavesOthers: an entry whose hash is malformed has no ticks and an error.
// It causes few calls, and does not delay the other entry.
func TestRun_UnreadableState_LeavesOthers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.m.HSet("hg:{default}:cron:odd", "last", "yesterday")
		r := b.start(nil, hourly(nil), hourly(func(e *Entry) { e.Name = "odd" }))
		until(1, 30)
		if calls := r.calls.Load(); calls > 2400 {
			b.Errorf("%d calls in 90 minutes", calls)
		}
		_, err := r.List(b.Context(), 1)
		for _, want := range []string{"key hg:{default}:cron:odd: ", "yesterday", "DoneUntil of type int64"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				b.Errorf("got %v, want an error with %q", err, want)
			}
		}
		b.wantTicks(1)
	})
}

// codeFailures are the ways in which a program's code can fail, with the errors that they become.
var codeFailures = []struct {
	fail func() error
	err  string
}{
	{func() error { return errors.New("no such account") }, "no such account"},
	{func() error { panic("no such account") }, "panicked: no such account"},
	{func() error { runtime.Goexit(); return nil }, "ended its goroutine"},
	{func() error { time.Sleep(time.Hour); return nil }, "has not returned"},
}

func TestPayload_Failure_FailsItsTick(t *testing.T) {
	for _, tc := range codeFailures {
		inBubble(t, func(b *bubble) {
			entry := hourly(func(e *Entry) {
				e.Zone = "Asia/Tokyo"
				e.Payload = func(tick time.Time) ([]byte, error) {
					if tick.Hour() == 10 { // 1:00 in UTC
						return nil, tc.fail()
					}
					return []byte(tick.Format(time.RFC3339)), nil
				}
			})
			r := b.start(nil, entry)
			b.start(nil, entry)
			until(1, 30)
			if s := b.list(r); !strings.HasPrefix(s.Outcome, "failed: payload: ") || !strings.Contains(s.Outcome, tc.err) || s.Failed != 1 || s.Last.Format("15:04 MST") != "10:00 JST" {
				b.Errorf("got %+v, want %s", s, tc.err)
			}
			until(2, 30)
			b.wantTicks(2)
			if got := string(b.q.tasks[0].Payload()); got != "2000-01-01T11:00:00+09:00" {
				b.Errorf("payload is %s", got)
			}
		})
	}
}

// failingEnqueuer fails for the first calls with the ID of one job.
type failingEnqueuer struct {
	*jobQueue
	id    string
	times int32
	fail  func() error
	calls atomic.Int32
}

func (f *failingEnqueuer) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	for _, option := range opts {
		if option.Type() == asynq.TaskIDOpt && option.Value() == f.id && f.calls.Add(1) <= f.times {
			return nil, f.fail()
		}
	}
	return f.jobQueue.EnqueueContext(ctx, task, opts...)
}

// TestEnqueuer_Failure_TriesAgain: a tick whose job cannot be enqueued is tried again after a pause.
// If it keeps failing, the next tick is not delayed.
func TestEnqueuer_Failure_TriesAgain(t *testing.T) {
	for _, tc := range codeFailures {
		for times, want := range map[int32][]int{1: {1, 2, 3, 4}, 10_000: {1, 3, 4}} {
			inBubble(t, func(b *bubble) {
				q := &failingEnqueuer{jobQueue: b.q, id: sweepIDs(2)[0], times: times, fail: tc.fail}
				r := b.start(func(r *replica) { r.queue = q }, hourly(nil))
				until(4, 30)
				b.wantTicks(want...)
				if s := b.list(r); s.Failed != int64(4-len(want)) || q.calls.Load() > 8 {
					b.Errorf("%s: got %+v, after %d calls; want %d failures", tc.err, s, q.calls.Load(), 4-len(want))
				}
			})
		}
	}
}
