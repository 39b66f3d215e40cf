package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/redistest"
)

// hourly is an entry like those of most tests below. A bubble's clock starts
// at midnight of 1 January 2000 in UTC.
func hourly(change func(*Entry)) Entry {
	e := Entry{Name: "sweep", Cron: "0 * * * *", Type: "sweep:all"}
	if change != nil {
		change(&e)
	}
	return e
}

func sweepIDs(hours ...int) []string {
	var ids []string
	for _, hour := range hours {
		at := time.Date(2000, 1, 1, hour, 0, 0, 0, time.UTC)
		ids = append(ids, fmt.Sprintf("sweep@%d", at.Unix()))
	}
	return ids
}

func checkIDs(t *testing.T, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("enqueued (-want +got):\n%s", diff)
	}
}

// until sleeps until a moment of the bubble's first days.
func until(hour, minute int) {
	time.Sleep(time.Until(time.Date(2000, 1, 1, hour, minute, 0, 0, time.UTC)))
}

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

// TestStalledReplica freezes the replica that has won a tick just before it
// enqueues: the others do it in its place, the job is done, and then it wakes.
func TestStalledReplica(t *testing.T) {
	for _, stall := range []time.Duration{2 * time.Second, 20 * time.Second, 4 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := redistest.Mini(t)
			q := newJobQueue()
			var all []*replica
			for range 3 {
				all = append(all, startReplica(t, m, q, []Entry{hourly(nil)}, func(r *replica) {
					r.stall = func(*asynq.Task) time.Duration {
						if r.calls.Load() < 8 {
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

func TestMissedTicks(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*Entry)
		back    int // the minute after 8:00 at which a process is there again
		want    []int
		outcome string
	}{
		{"skip", nil, 30, []int{1, 9}, "enqueued"},
		{"skip, the last one is timely", nil, 0, []int{1, 8, 9}, "enqueued"},
		{"once", func(e *Entry) { e.Missed = MissedOnce }, 30, []int{1, 8, 9}, "enqueued"},
		{"once, the last one is timely", func(e *Entry) { e.Missed = MissedOnce }, 0, []int{1, 8, 9}, "enqueued"},
		{"all", func(e *Entry) { e.Missed = MissedAll }, 30, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, "enqueued"},
		{"all, the last one is timely", func(e *Entry) { e.Missed = MissedAll }, 0, []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, "enqueued"},
		{"all up to 3", func(e *Entry) { e.Missed, e.MissedMax = MissedAll, 3 }, 30, []int{1, 6, 7, 8, 9}, "enqueued"},
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
				second := startReplica(t, m, q, entries, nil)
				until(9, 30)
				second.end()
				checkIDs(t, q.ids(), sweepIDs(tc.want...))
			})
		})
	}
}

// TestMissedForLong is about the work, which must not grow with the number of
// ticks that were missed: here some six million.
func TestMissedForLong(t *testing.T) {
	rule, err := newTickRule(Entry{Cron: "*/5 * * * * *", Seconds: true})
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

func TestPauseOnAllReplicas(t *testing.T) {
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

// TestResumeFinishesWhatWasDueBefore has a tick that nobody enqueued before
// the pause began.
func TestResumeFinishesWhatWasDueBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		entries := []Entry{hourly(func(e *Entry) { e.Missed = MissedAll })}
		first := startReplica(t, m, q, entries, nil)
		until(1, 30)
		first.end()
		operator := newReplica(t, m, q, entries, nil)
		until(2, 30)
		if err := operator.Pause(t.Context(), "sweep"); err != nil {
			t.Fatal(err)
		}
		until(4, 30)
		if err := operator.Resume(t.Context(), "sweep"); err != nil {
			t.Fatal(err)
		}
		checkIDs(t, q.ids(), sweepIDs(1, 2))
	})
}

func TestOverlapSkip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
		entries := []Entry{hourly(func(e *Entry) { e.Overlap = OverlapSkip })}
		r := startReplica(t, m, client, entries, nil)
		until(2, 30) // the job of 1:00 waits, so that of 2:00 is skipped
		list, err := r.List(t.Context(), 1)
		if err != nil || list[0].Outcome != "skipped: still running" || list[0].Skipped != 1 {
			t.Errorf("after the second tick: %+v, %v", list, err)
		}
		if err := inspector.ArchiveTask("default", sweepIDs(1)[0]); err != nil {
			t.Fatal(err)
		}
		until(3, 30) // the job of 1:00 has ended, so that of 3:00 is added
		if err := inspector.DeleteTask("default", sweepIDs(3)[0]); err != nil {
			t.Fatal(err)
		}
		id, err := r.RunNow(t.Context(), "sweep") // and this one stops that of 4:00
		if err != nil {
			t.Fatal(err)
		}
		until(4, 30)
		r.end()
		tasks, err := inspector.ListPendingTasks("default")
		if err != nil || len(tasks) != 1 || tasks[0].ID != id {
			t.Errorf("pending: %v, %v; want only %s", tasks, err, id)
		}
		if list, err = r.List(t.Context(), 1); err != nil || list[0].Skipped != 2 || list[0].Enqueued != 2 {
			t.Errorf("at the end: %+v, %v", list, err)
		}
	})
}

func TestPayloadFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		entries := []Entry{hourly(func(e *Entry) {
			e.Zone = "Asia/Tokyo"
			e.Payload = func(tick time.Time) ([]byte, error) {
				if tick.Hour() == 10 { // 1:00 in UTC
					return nil, errors.New("no such account")
				}
				return []byte(tick.Format(time.RFC3339)), nil
			}
		})}
		a, b := startReplica(t, m, q, entries, nil), startReplica(t, m, q, entries, nil)
		until(1, 30)
		list, err := a.List(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		want := "failed: payload: no such account"
		if s := list[0]; s.Outcome != want || s.Failed != 1 || s.Last.Format("15:04 MST") != "10:00 JST" {
			t.Errorf("got %+v, want %s", s, want)
		}
		until(2, 30)
		a.end()
		b.end()
		checkIDs(t, q.ids(), sweepIDs(2))
		if got := string(q.tasks[0].Payload()); got != "2000-01-01T11:00:00+09:00" {
			t.Errorf("payload is %s", got)
		}
	})
}

// TestSlowPayload takes longer than a state is good for.
func TestSlowPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		entries := []Entry{hourly(func(e *Entry) {
			e.Payload = func(time.Time) ([]byte, error) {
				time.Sleep(2 * freshFor)
				return nil, nil
			}
		})}
		a, b := startReplica(t, m, q, entries, nil), startReplica(t, m, q, entries, nil)
		until(2, 30)
		a.end()
		b.end()
		checkIDs(t, q.ids(), sweepIDs(1, 2))
	})
}

// refusing fails for the ticks of one hour, as an enqueuer does that finds
// something wrong with a job.
type refusing struct {
	*jobQueue
	id string
}

func (r refusing) EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error) {
	for _, option := range opts {
		if option.Type() == asynq.TaskIDOpt && option.Value() == r.id {
			return nil, errors.New("payload is too large")
		}
	}
	return r.jobQueue.EnqueueContext(ctx, task, opts...)
}

func TestRefusedTickDoesNotHoldUpTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := startReplica(t, m, refusing{q, sweepIDs(2)[0]}, []Entry{hourly(nil)}, nil)
		until(4, 30)
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1, 3, 4))
		if list, err := r.List(t.Context(), 1); err != nil || list[0].Failed != 1 {
			t.Errorf("got %+v, %v; want one failure", list, err)
		}
	})
}

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

func TestSetChangesAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := startReplica(t, m, q, []Entry{hourly(nil)}, nil)
		until(1, 30)
		err := r.Set([]Entry{
			hourly(func(e *Entry) { e.Cron = "30 * * * *" }),
			{Name: "bad", Cron: "0 0 31 2 *", Type: "x"},
			{Name: "worse", Cron: "0 0 * * *", Zone: "Nowhere", Type: "x"},
			hourly(nil),
		})
		for _, want := range []string{`"bad": cron`, `"worse": zone`, `"sweep": name "sweep" is there twice`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want it to say %s", err, want)
			}
		}
		until(3, 15)
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1, 2, 3))
	})
}

// TestSetWhileRunning changes, removes and brings back an entry on two
// replicas, one some seconds after the other.
func TestSetWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		every := hourly(func(e *Entry) { e.Missed = MissedAll })
		half := hourly(func(e *Entry) { e.Cron, e.Missed = "30 * * * *", MissedAll })
		off := hourly(func(e *Entry) { e.Missed, e.Disabled = MissedAll, true })
		a, b := startReplica(t, m, q, []Entry{every}, nil), startReplica(t, m, q, []Entry{every}, nil)
		set := func(entries ...Entry) {
			for _, r := range []*replica{a, b} {
				if err := r.Set(entries); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
			}
		}
		until(2, 0) // at the very moment of a tick, which still comes
		set(half)   // 2:30, 3:30
		until(4, 15)
		set() // nothing
		until(6, 15)
		set(every) // 7:00
		until(7, 15)
		set(off)
		until(9, 15)
		a.end() // it starts again with the entry disabled
		a = startReplica(t, m, q, []Entry{off}, nil)
		until(10, 15)
		set(every) // 11:00
		until(11, 15)
		a.end()
		b.end()
		want := sweepIDs(1, 2)
		for _, hour := range []int{2, 3} {
			want = append(want, fmt.Sprintf("sweep@%d", time.Date(2000, 1, 1, hour, 30, 0, 0, time.UTC).Unix()))
		}
		checkIDs(t, q.ids(), append(want, sweepIDs(7, 11)...))
	})
}

// TestChangedWhileDown starts with another cron line than the one before the
// stop: what the old line missed counts, and nothing of the new line's past.
func TestChangedWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := startReplica(t, m, q, []Entry{hourly(nil)}, nil)
		until(1, 15)
		r.end()
		until(3, 15)
		r = startReplica(t, m, q, []Entry{hourly(func(e *Entry) {
			e.Cron, e.Missed = "*/30 * * * *", MissedAll
		})}, nil)
		until(4, 15)
		r.end()
		at330 := fmt.Sprintf("sweep@%d", time.Date(2000, 1, 1, 3, 30, 0, 0, time.UTC).Unix())
		checkIDs(t, q.ids(), slices.Concat(sweepIDs(1, 2, 3), []string{at330}, sweepIDs(4)))
	})
}

func TestJitterIsTheTicks(t *testing.T) {
	item := &cronItem{entry: Entry{Name: "sweep", Jitter: 10 * time.Second}}
	seen := map[time.Duration]int{}
	for i := range 2000 {
		tick := time.Unix(int64(i)*3600, 0)
		delay := item.delay(tick)
		if delay != item.delay(tick.UTC()) {
			t.Fatalf("tick %v has two delays", tick)
		}
		seen[delay]++
	}
	for second := range 11 {
		if n := seen[time.Duration(second)*time.Second]; n < 100 {
			t.Errorf("%d of 2000 ticks have a delay of %d s", n, second)
		}
		delete(seen, time.Duration(second)*time.Second)
	}
	if len(seen) > 0 {
		t.Errorf("delays beyond the jitter: %v", seen)
	}
}

func TestJobOptions(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Entry)
		want   string
	}{
		{"plain", nil, `[TaskID("sweep@946688400") Queue("default") Retention(5m0s)]`},
		{"own", func(e *Entry) {
			e.Queue = "low"
			e.Options = []asynq.Option{asynq.MaxRetry(3), asynq.Retention(time.Hour), asynq.Timeout(time.Minute)}
		}, `[MaxRetry(3) Timeout(1m0s) TaskID("sweep@946688400") Queue("low") Retention(1h0m0s)]`},
		{"short retention", func(e *Entry) {
			e.Options = []asynq.Option{asynq.Retention(time.Second)}
		}, `[TaskID("sweep@946688400") Queue("default") Retention(5m0s)]`},
		{"jitter", func(e *Entry) { e.Jitter = time.Hour },
			`[TaskID("sweep@946688400") Queue("default") Retention(5m0s) ProcessIn(47m35s)]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := redistest.Mini(t)
				q := newJobQueue()
				r := startReplica(t, m, q, []Entry{hourly(tc.change)}, nil)
				until(1, 30)
				r.end()
				if got := fmt.Sprint(q.opts); got != tc.want {
					t.Errorf("got %s, want %s", got, tc.want)
				}
			})
		})
	}
}

func TestListAndRunNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := newReplica(t, m, q, []Entry{
			hourly(func(e *Entry) { e.Zone = "Asia/Kathmandu" }),
			{Name: "off", Cron: "@daily", Type: "x", Disabled: true},
		}, nil)
		list, err := r.List(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range list {
			got = append(got, s.Entry.Name)
			for _, next := range s.Next {
				got = append(got, next.Format("15:04 -0700"))
			}
		}
		if diff := cmp.Diff([]string{"off", "sweep", "06:00 +0545", "07:00 +0545"}, got); diff != "" {
			t.Error(diff)
		}
		id, err := r.RunNow(t.Context(), "sweep")
		if err != nil {
			t.Fatal(err)
		}
		checkIDs(t, q.ids(), []string{id})
		_, err = r.RunNow(t.Context(), "swep")
		for _, err := range []error{err, r.Pause(t.Context(), "swep"), r.Resume(t.Context(), "swep")} {
			if !errors.Is(err, ErrNoEntry) || !strings.Contains(err.Error(), `"swep"`) {
				t.Errorf("got %v, want ErrNoEntry with the name", err)
			}
		}
	})
}
