package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestDispatcher_SlotFreedBeforeMark: a slot comes back before the dispatcher has written that its
// next job waits for one, so that no notification is sent. The job is granted at once all the same.
func TestDispatcher_SlotFreedBeforeMark(t *testing.T) {
	writes := &tap{is: isScript("lanes/publish_shares"), takes: 20 * time.Millisecond}
	virtual(t, settings{config: quick, split: true, rule: ruleOfPayload, hooks: []redis.Hook{writes.hook()}, limits: []throttle.Limit{funnel("rate", 10, 1), oneSlot}}, func(_ *testing.T, st *stack) {
		st.enqueueN(20, "rate slot")
		time.Sleep(4 * time.Second)
		st.wantOnce(20)
		st.wantClean()
	})
}

// TestDispatcher_LeaderStops: the worker that leads stops gracefully. Another one gives the next
// turn at most 100 ms late, whatever the leader's lease was, also if jobs come only then.
func TestDispatcher_LeaderStops(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		every  time.Duration
		before int // jobs; some of them still wait when the leader stops
		stop   time.Duration
		after  int // jobs that are enqueued then
	}{
		"many turns":         {100 * time.Millisecond, 150, 10 * time.Second, 0},
		"rare turns":         {3 * time.Second, 8, 10500 * time.Millisecond, 0},
		"just before a turn": {3 * time.Second, 8, 11900 * time.Millisecond, 0},
		"an idle scope":      {time.Second, 1, 11 * time.Second, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings{config: quick, limits: []throttle.Limit{each(row.every)}}
			virtual(t, s, func(t *testing.T, leader *stack) {
				leader.enqueueN(row.before, "")
				time.Sleep(time.Second)
				next := leader.beside(s)
				time.Sleep(row.stop - time.Second)
				leader.server.Shutdown()
				leader.enqueueN(row.after, "")
				time.Sleep(15 * time.Second)
				ran := append(leader.ran(), next.ran()...)
				slices.SortFunc(ran, func(a, b run) int { return a.at.Compare(b.at) })
				if len(ran) != row.before+row.after {
					t.Errorf("%d jobs ran, want %d", len(ran), row.before+row.after)
				}
				for i := 1; i < len(ran); i++ {
					if i != row.before && ran[i].at.Sub(ran[i-1].at) > row.every+100*time.Millisecond {
						t.Errorf("job %d ran %s after the one before, want %s and 100 ms at most", i, ran[i].at.Sub(ran[i-1].at), row.every)
					}
				}
			})
		})
	}
}

// TestDispatcher_DeadWorkersJob: a worker dies with a granted job before it has asked for the
// permits. Its job comes back later, and the lane does not wait for it.
func TestDispatcher_DeadWorkersJob(t *testing.T) {
	acquires, asked := isScript("lanes/acquire"), 0
	dies := newFuse(func(cmd redis.Cmder) bool {
		if acquires(cmd) && slices.Contains(cmd.Args(), any("job-0001")) {
			asked++
		}
		return asked == 2
	})
	s := settings{config: oneWorker, limits: []throttle.Limit{funnel("api", 1, 1)}, fuse: dies}
	virtual(t, s, func(_ *testing.T, first *stack) {
		first.enqueueN(5, "")
		<-dies.blown
		s.fuse = nil
		second := first.beside(s)
		time.Sleep(15 * time.Second) // another takes over within 7 s
		second.wantRuns(3)           // the jobs behind it
		time.Sleep(2 * time.Minute)
		second.wantOnceEach(4)
		second.wantClean()
	})
}

// TestDispatcher_LostNotifications: the notification of a change gets lost, or all but a later one.
// The change is found by two heartbeats later, or at once. While the leader gives turns, heartbeats
// are frequent.
func TestDispatcher_LostNotifications(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		others int  // jobs that wait for another limit
		later  bool // whether a later notification arrives
		within time.Duration
	}{
		"last":           {0, false, 2*dispatcher.DefaultMaxHeartbeat + time.Second},
		"busy":           {150, false, time.Second},
		"before another": {0, true, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			limits := []throttle.Limit{each(24 * time.Hour), funnel("other", 1, 1)}
			virtual(t, settings{config: quick, limits: limits, rule: ruleOfPayload}, func(t *testing.T, st *stack) {
				st.takePermit("api")
				id := st.enqueueN(1, "api")[0]
				st.enqueueN(test.others, "other")
				time.Sleep(73 * time.Second) // by now its meter is asked twice a minute
				redistest.Before(st.limitServer, func(c *server.Peer, cmd string, _ ...string) bool {
					if cmd == "PUBLISH" {
						c.WriteInt(0)
					}
					return cmd == "PUBLISH"
				})
				began := time.Now()
				st.must(st.limiter.Set(t.Context(), funnel("api", 10, 10)))
				redistest.Before(st.limitServer, nil)
				if test.later {
					st.must(st.limiter.Reset(t.Context(), "other", ""))
				}
				time.Sleep(40 * time.Second)
				ran := st.ran()
				i := slices.IndexFunc(ran, func(r run) bool { return r.id == id })
				if i < 0 || ran[i].at.Sub(began) > test.within {
					t.Errorf("run %d of %v is of %s, want it %s after the change at most", i, st.order(), id, test.within)
				}
			})
		})
	}
}

// TestDispatcher_LosesQueues: the leader loses the queues' Redis. Another process takes over, so
// that 500 jobs at 10 a second take 50 s.
func TestDispatcher_LosesQueues(t *testing.T) {
	t.Parallel()
	s := settings{config: quick, split: true, limits: []throttle.Limit{funnel("api", 10, 10)}}
	virtual(t, s, func(t *testing.T, leader *stack) {
		began := time.Now()
		leader.enqueueN(500, "")
		time.Sleep(10 * time.Second)
		other := leader.beside(s)
		time.Sleep(5 * time.Second)
		leader.toQueues.cut.Store(true)
		time.Sleep(50 * time.Second)
		leader.toQueues.cut.Store(false)
		last, seen := time.Duration(0), map[string]bool{}
		for _, r := range append(leader.ran(), other.ran()...) {
			last, seen[r.id] = max(last, r.at.Sub(began)), true
		}
		if len(seen) != 500 || last > 55*time.Second || len(other.ran()) < 300 {
			t.Errorf("%d jobs ran, %d of them in the other process, the last after %s; want 500 within 55 s, most of them there", len(seen), len(other.ran()), last)
		}
	})
}

// TestDispatcher_DiesBeforePromote: two processes die as they would promote a job that they have
// granted. The third one promotes it within 5 s.
func TestDispatcher_DiesBeforePromote(t *testing.T) {
	limit := throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1, Lease: time.Hour}
	s := settings{config: quick, limits: []throttle.Limit{limit}, fuse: newFuse(isPromote)}
	virtual(t, s, func(t *testing.T, st *stack) {
		first := s.fuse
		s.fuse = newFuse(isPromote)
		second := st.beside(s)
		rdb := redistest.MiniClient(t, st.queueServer)
		operator := newSpy(rdb, throttle.Options{})
		held, err := operator.AllowAll(t.Context(), needs("slot").Needs...)
		st.must(err)
		second.enqueueN(1, "")
		time.Sleep(time.Second) // the job is denied
		st.must(operator.Limiter.Free(t.Context(), held.Holder, needs("slot").Needs...))
		<-first.blown
		<-s.fuse.blown
		s.fuse = nil
		died := time.Now()
		third := st.beside(s)
		time.Sleep(time.Minute)
		third.wantLastBy(died, 1, 5*time.Second)
	})
}

// TestReconcile_ChecksAreNoOrphans: a process that starts puts back and promotes a job of its own,
// to see whether it can. The limiter does not know that job, and the dispatcher leaves it alone.
func TestReconcile_ChecksAreNoOrphans(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{funnel("api", 1, 1)}}, func(t *testing.T, st *stack) {
		check := asynqdb.CheckQueue + "of another"
		_, scope := st.server.scopes[0].limiter.Scope()
		fetching := st.server.prefetcher.lock
		fetching <- struct{}{} // the server must not fetch the job of its queue first
		for _, queue := range []string{check, "default"} {
			st.enqueue(needing(""), asynq.TaskID("it"), asynq.Queue(queue))
			st.must(asynqdb.New(st.rdb).Deny(t.Context(), queue, time.Now().Add(time.Hour)))
			st.must(st.rdb.HSet(t.Context(), asynqdb.Hash(queue, "it"), "scope", scope).Err())
		}
		<-fetching
		time.Sleep(65 * time.Second)
		if info, err := st.tasks.GetTaskInfo(check, "it"); err != nil || info.State != asynq.TaskStateRetry {
			t.Errorf("the job in queue %s is %v, %v; want %s", check, info, err, asynq.TaskStateRetry)
		}
		st.wantOnceEach(1) // the orphan in the other queue
	})
}

// TestPromote_PassesTheBacklog: a granted job comes before all that its queue has pending. If the
// pending jobs take longer than its permits are reserved, it would always come too late.
func TestPromote_PassesTheBacklog(t *testing.T) {
	virtual(t, settings{config: oneWorker, limits: []throttle.Limit{funnel("api", 1, 1)}, rule: ruleOfPayload, handle: takes(50 * time.Millisecond)}, func(t *testing.T, st *stack) {
		limited := st.enqueueN(5, "api")
		st.enqueueN(200, "") // 10 s of work that needs no permit
		began := time.Now()
		time.Sleep(15 * time.Second)
		for _, r := range st.ran() {
			i := slices.Index(limited, r.id)
			if late := r.at.Sub(began) - time.Duration(i)*time.Second; i >= 0 && late > 500*time.Millisecond {
				t.Errorf("%s ran %s after its permit existed, want at most 0.5 s", r.id, late)
			}
		}
		st.wantDenials(4, 1, 1)
		st.wantOnceEach(205)
	})
}
