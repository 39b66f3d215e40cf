package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// Situations that a random world rarely gets into: each needs a piece that
// TestEveryPieceIsNeeded takes out.

// The limiter has lost its data, and with them who waits. The put-backs of those
// jobs end in hours; they ask anew within a minute.
func TestReconcile_OrphansAskAgain(t *testing.T) {
	limit := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}
	synctest.Test(t, func(t *testing.T) {
		_, queues := redistest.Mini(t)
		_, limiter := redistest.Mini(t)
		st := start(t, queues, settings{config: quick, redis: limiter, limits: []throttle.Limit{limit}})
		for i := range 4 {
			st.enqueue(needing(""), numbered("job", i))
		}
		time.Sleep(10 * time.Second)
		st.must(st.limits.FlushAll(t.Context()).Err())
		time.Sleep(time.Minute)
		waiting := st.limits.HLen(t.Context(), "hg:{default}:jobs").Val()
		if ran := len(st.ran()); ran != 2 || waiting != 2 {
			t.Errorf("%d jobs ran and %d wait, want 2 and 2: the meter was lost, too", ran, waiting)
		}
	})
}

// A process that starts has a job of its own denied and promoted, to see whether it
// can. The limiter does not know that job, and whoever gives turns leaves it alone.
func TestReconcile_ChecksAreNoOrphans(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{funnel("api", 1, 1)}}, func(t *testing.T, st *stack) {
		for _, queue := range []string{asynqdb.CheckQueue + "of another", "any other"} {
			st.enqueue(needing(""), asynq.TaskID("it"), asynq.Queue(queue))
			st.must(asynqdb.New(st.rdb).Deny(t.Context(), queue, time.Now().Add(time.Hour)))
			_, scope := st.server.scopes[0].limiter.Scope()
			st.must(st.rdb.HSet(t.Context(), asynqdb.Hash(queue, "it"), "scope", scope).Err())
		}
		time.Sleep(65 * time.Second)
		states := map[string]asynq.TaskState{asynqdb.CheckQueue + "of another": asynq.TaskStateRetry, "any other": asynq.TaskStatePending}
		for queue, want := range states {
			if info, err := st.tasks.GetTaskInfo(queue, "it"); err != nil || info.State != want {
				t.Errorf("the job in queue %s is %v, %v; want %s", queue, info, err, want)
			}
		}
	})
}

// A worker dies with a called job before it has asked: asynq gives that job back
// after a minute or so, and the lane does not wait for it.
func TestDispatcher_DeadWorkersJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		one := quick
		one.Concurrency = 1 // they ask in order
		s := settings{config: one, limits: []throttle.Limit{funnel("api", 1, 1)}}
		asked := 0
		dies := newFuse(func(cmd redis.Cmder) bool {
			if args := cmd.Args(); cmd.Name() == "evalsha" && args[1] == script.New("lanes/acquire").Hash() && slices.Contains(args, any("job-0001")) {
				asked++
			}
			return asked == 2
		})
		rdb.AddHook(dies)
		first := start(t, rdb, s)
		t.Cleanup(func() { close(dies.released) })
		for i := range 5 {
			first.enqueue(needing(""), numbered("job", i))
		}
		<-dies.blown
		second := start(t, redistest.MiniClient(t, m), s)
		time.Sleep(15 * time.Second) // another takes over within 7 s
		if n := len(second.ran()); n != 3 {
			t.Errorf("%d of the 3 jobs behind it ran, want all", n)
		}
		time.Sleep(2 * time.Minute)
		second.wantOnceEach(4)
		second.wantClean()
	})
}

// The word of a change gets lost, or all but a later one's. It is noticed by two
// heartbeats later, or at once.
func TestDispatcher_LostNotifications(t *testing.T) {
	slow := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(24 * time.Hour)}
	other := throttle.Limit{Name: "other", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}
	for _, test := range []struct {
		name   string
		heard  bool // a later word
		within time.Duration
	}{{"the last word", false, 2*dispatcher.DefaultMaxHeartbeat + time.Second}, {"the word before", true, 100 * time.Millisecond}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, rdb := redistest.Mini(t)
				st := start(t, rdb, settings{config: quick, limits: []throttle.Limit{slow, other}})
				if d, err := st.limiter.Allow(t.Context(), "api", ""); !d.OK() {
					t.Fatal(d, err)
				}
				st.enqueue(needing(""))
				time.Sleep(73 * time.Second) // by now its meter is asked twice a minute
				redistest.Before(m, func(c *server.Peer, cmd string, _ ...string) bool {
					if cmd == "PUBLISH" {
						c.WriteInt(0)
					}
					return cmd == "PUBLISH"
				})
				began := time.Now()
				st.must(st.limiter.Set(t.Context(), funnel("api", 10, 10)))
				redistest.Before(m, nil)
				if test.heard {
					st.must(st.limiter.Reset(t.Context(), "other", ""))
				}
				time.Sleep(40 * time.Second)
				st.wantLastBy(began, 1, test.within)
			})
		})
	}
}

// A called job comes past all that its queue has pending: where they take longer
// than its permits are reserved for, it would always come too late.
func TestPromote_PassesTheBacklog(t *testing.T) {
	one := quick
	one.Concurrency = 1
	limits := []throttle.Limit{funnel("api", 1, 1)}
	handle := func(context.Context, *asynq.Task) error {
		time.Sleep(50 * time.Millisecond)
		return nil
	}
	virtual(t, settings{config: one, limits: limits, rule: ruleOfPayload, handle: handle}, func(t *testing.T, st *stack) {
		for i := range 5 {
			st.enqueue(needing("api"), numbered("job", i))
		}
		for range 200 { // 10 s of work that needs no permit
			st.enqueue(needing(""))
		}
		began := time.Now()
		time.Sleep(15 * time.Second)
		for _, r := range st.ran() {
			var i int
			if _, err := fmt.Sscanf(r.id, "job-%d", &i); err != nil {
				continue
			}
			if late := r.at.Sub(began) - time.Duration(i)*time.Second; late > 500*time.Millisecond {
				t.Errorf("%s ran %s after its permit existed, want at most 0.5 s", r.id, late)
			}
		}
		st.wantDenials(4, 1, 1)
		st.wantOnceEach(205)
	})
}

// A queue's only worker is slower than its share of a limit, beside a queue with a free worker.
// The slow queue's jobs come in order. The queue gets permits only for its free worker, and the
// other queue gets all other permits. If its server cannot say that the worker is free, jobs
// come late, and take the permits of later ones.
func TestDispatcher_SlowQueueBesideFast(t *testing.T) {
	for name, row := range map[string]struct {
		silent     bool
		slow, both int     // jobs that run in 4 s
		mean       float64 // denials of a job
		most       int
	}{
		"server says":    {false, 16, 77, 1.05, 2}, // a job that is granted before its worker is known to be busy comes late
		"server is mute": {true, 18, 56, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, rdb := redistest.Mini(t)
				rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					if row.silent && cmd.Name() == "publish" && strings.HasPrefix(fmt.Sprint(cmd.Args()[2]), "slots_free") {
						return nil
					}
					return next(ctx, cmd)
				}))
				serve := func(rdb redis.UniversalClient, queue string, takes time.Duration) *stack {
					return start(t, rdb, settings{
						config: asynq.Config{Concurrency: 1, TaskCheckInterval: 20 * time.Millisecond, Queues: map[string]int{queue: 1}},
						limits: []throttle.Limit{funnel("api", 20, 2)},
						handle: func(context.Context, *asynq.Task) error {
							time.Sleep(takes)
							return nil
						},
					})
				}
				slow, fast := serve(rdb, "slow", 200*time.Millisecond), serve(redistest.MiniClient(t, m), "fast", 0)
				for i := range 80 {
					slow.enqueue(needing(""), numbered("job", i), asynq.Queue("slow"))
					fast.enqueue(needing(""), numbered("job", i), asynq.Queue("fast"))
				}
				time.Sleep(4 * time.Second)
				ran := slow.ran()
				if !slices.IsSortedFunc(ran, func(a, b run) int { return strings.Compare(a.id, b.id) }) {
					t.Errorf("the slow queue's jobs ran out of order: %v", ran)
				}
				slow.wantDenials(80, row.mean, row.most)
				if both := len(ran) + len(fast.ran()); len(ran) < row.slow || both < row.both {
					t.Errorf("%d jobs of the slow queue ran of %d, want %d of %d", len(ran), both, row.slow, row.both)
				}
			})
		})
	}
}
