package scheduler

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/throttle"
)

// Jobs of a limit that does not exist wait, in order and without an attempt, and run as soon as the
// limit is defined. A deleted limit is the same, for jobs that wait already and for new ones.
func TestMissingLimit_JobsWait(t *testing.T) {
	const jobs, keys = 300, 3
	for name, row := range map[string]struct {
		before func(st *stack) // before the jobs
		after  func(st *stack) // when they wait
		most   int             // denials of a job
	}{
		"never defined": {most: 2},
		"deleted before": {
			before: func(st *stack) {
				st.must(st.limiter.Define(st.t.Context(), perMinute(6000, 1)))
				st.must(st.limiter.Delete(st.t.Context(), "api"))
			},
			most: 2,
		},
		"deleted while they wait": {
			before: func(st *stack) {
				st.must(st.limiter.Define(st.t.Context(), perMinute(6000, 1)))
				st.must(st.limiter.Pause(st.t.Context(), "api"))
			},
			after: func(st *stack) { st.must(st.limiter.Delete(st.t.Context(), "api")) },
			most:  3,
		},
		"for other apps": {
			before: func(st *stack) {
				l := perMinute(6000, 1)
				l.Apps = []string{"other"}
				st.must(st.limiter.Define(st.t.Context(), l))
			},
			most: 7, // each minute, the first job of a lane asks again
		},
	} {
		t.Run(name, func(t *testing.T) {
			var log proctest.Log
			rule := func(task *asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "api", Key: string(task.Payload())}}}, nil
			}
			virtual(t, settings{rule: rule, log: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, st *stack) {
				if row.before != nil {
					row.before(st)
				}
				var ids []string
				for i := range jobs {
					ids = append(ids, st.enqueue(asynq.NewTask("job", fmt.Append(nil, i%keys))))
				}
				time.Sleep(time.Minute)
				if row.after != nil {
					row.after(st)
				}
				time.Sleep(4 * time.Minute)
				st.wantRuns(0)
				for _, id := range ids {
					if info := st.info(id); info.State != asynq.TaskStateRetry || info.Retried != 0 {
						t.Fatalf("job %s is %s and was retried %d times, want it put back", id, info.State, info.Retried)
					}
				}
				// A loss of what Redis knows of them is repaired: some jobs ask again.
				_, prefix := st.limiter.Scope()
				st.must(st.rdb.Del(st.t.Context(), prefix+"missing:api").Err())
				time.Sleep(time.Minute)
				st.wantRuns(0)
				st.must(st.limiter.Set(st.t.Context(), perMinute(6000, 1)))
				time.Sleep(5 * time.Second)
				st.wantOnceEach(jobs)
				st.wantDenials(jobs, float64(row.most), row.most)
				for key := range keys {
					var order []int
					for _, id := range st.order() {
						for i, other := range ids {
							if other == id && i%keys == key {
								order = append(order, i)
							}
						}
					}
					for i := 1; i < len(order); i++ {
						if order[i] < order[i-1] {
							t.Fatalf("jobs of key %d ran in the order %v", key, order)
						}
					}
				}
				if n := strings.Count(log.String(), "jobs wait until their limit is defined"); n != 1 {
					t.Errorf("the warning was logged %d times, want once:\n%s", n, log.String())
				}
			})
		})
	}
}

// While jobs wait for a limit that does not exist, other jobs of their queue run, and the server
// sends no more commands than it does for a paused limit. The numbers of two runs differ by up to a
// tenth in either direction, so medians are compared.
func TestMissingLimit_CostsNothing(t *testing.T) {
	missing, paused := commandsWhileWaiting(t, "missing"), commandsWhileWaiting(t, "paused")
	if missing > paused*11/10 {
		t.Errorf("%d commands in two minutes for jobs of a missing limit, %d for a paused one", missing, paused)
	}
}

// commandsWhileWaiting returns the median of three runs: the number of commands in two minutes while
// 1000 jobs wait for the limit.
func commandsWhileWaiting(t *testing.T, limit string) int {
	rule := func(task *asynq.Task) (Rule, error) {
		if string(task.Payload()) == "other" {
			return Rule{}, nil
		}
		return needs(limit), nil
	}
	var commands []int
	for range 3 {
		virtual(t, settings{rule: rule, limits: []throttle.Limit{funnel("paused", 1, 1)}}, func(t *testing.T, st *stack) {
			st.must(st.limiter.Pause(t.Context(), "paused"))
			for range 1000 {
				st.enqueue(asynq.NewTask("job", nil))
			}
			time.Sleep(time.Minute)
			st.enqueue(asynq.NewTask("job", []byte("other")))
			before := st.queueServer.CommandCount()
			time.Sleep(2 * time.Minute)
			st.wantRuns(1)
			commands = append(commands, st.queueServer.CommandCount()-before)
		})
	}
	slices.Sort(commands)
	return commands[1]
}

// Jobs wait for a limit that does not exist when their rule's OnNoLimit changes. They do within
// seconds what the new rule says.
func TestMissingLimit_RuleNoLongerWaits(t *testing.T) {
	const jobs = 100
	for _, action := range []Action{ActionArchive, ActionRun} {
		t.Run(string(action), func(t *testing.T) {
			var onNoLimit atomic.Value
			onNoLimit.Store(ActionWait)
			rule := func(*asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "api"}}, OnNoLimit: onNoLimit.Load().(Action)}, nil
			}
			virtual(t, settings{config: quick, rule: rule}, func(t *testing.T, st *stack) {
				ids := st.enqueueN(jobs, "it")
				time.Sleep(5 * time.Minute)
				st.wantRuns(0)
				onNoLimit.Store(action)
				st.server.RulesChanged()
				time.Sleep(5 * time.Second)
				if action == ActionRun {
					st.wantOnceEach(jobs)
					return
				}
				for _, id := range ids {
					st.wantJob(id, asynq.TaskStateArchived, "no such limit: api")
				}
			})
		})
	}
}

// hourlyWarnings warns of each limit once in warnInterval, and forgets limits that jobs needed before.
func TestMissingLimits_Forgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m hourlyWarnings
		for i := range 300 {
			if due := m.mayWarn("again"); due != (i%60 == 0) {
				t.Fatalf("after %d min: a warning is due: %t", i, due)
			}
			if !m.mayWarn(fmt.Sprint(i)) || m.mayWarn(fmt.Sprint(i)) {
				t.Fatalf("limit %d: want one warning", i)
			}
			time.Sleep(time.Minute)
		}
		if n := len(m.warned); n > 62 {
			t.Errorf("%d limits are kept, want those of an hour", n)
		}
		for hour := range 2 {
			time.Sleep(warnInterval)
			warnings := 0
			for i := range 10 * maxWarned {
				if m.mayWarn(fmt.Sprint("made up ", hour, i)) {
					warnings++
				}
			}
			if warnings != maxWarned {
				t.Errorf("%d warnings in an hour, want %d", warnings, maxWarned)
			}
		}
	})
}

// Jobs in all shards of a queue wait for a limit that does not exist. The log says so once, and all run
// when it is defined.
func TestMissingLimit_Shards(t *testing.T) {
	var log proctest.Log
	s := crawlSettings(8)
	s.limits, s.log = slices.DeleteFunc(s.limits, func(l throttle.Limit) bool { return l.Name == "total" }), slog.New(slog.NewTextHandler(&log, nil))
	virtual(t, s, func(t *testing.T, st *stack) {
		enqueueCrawl(t, st.rdb, 100, 40)
		time.Sleep(2 * time.Minute)
		st.wantRuns(10)
		if n := strings.Count(log.String(), "jobs wait until their limit is defined"); n != 1 {
			t.Errorf("the warning was logged %d times, want once:\n%s", n, log.String())
		}
		st.must(st.server.Define(t.Context(), crawlLimits()...))
		time.Sleep(10 * time.Second)
		st.wantRuns(110)
	})
}

// While jobs wait for a limit that does not exist or is paused, callers of Allow get all permits of
// the other limits that these jobs need.
func TestMissingLimit_LeavesOtherLimits(t *testing.T) {
	for _, closed := range []string{"missing", "paused"} {
		rule := Rule{Needs: []throttle.Need{{Limit: "api"}, {Limit: closed}}}
		virtual(t, settings{rule: always(rule), limits: []throttle.Limit{funnel("api", 10, 1), funnel("paused", 1, 1)}}, func(t *testing.T, st *stack) {
			st.must(st.limiter.Pause(t.Context(), "paused"))
			for range 100 {
				st.enqueue(asynq.NewTask("job", nil))
			}
			time.Sleep(10 * time.Second)
			allowed := 0
			for range 300 {
				d, err := st.limiter.Allow(t.Context(), "api", "")
				st.must(err)
				if d.OK() {
					allowed++
				}
				time.Sleep(100 * time.Millisecond)
			}
			if allowed < 297 {
				t.Errorf("%s: %d of 300 calls were allowed, want all", closed, allowed)
			}
		})
	}
}

// A job of a sharded queue that needs a limit which the queue does not have waits, too, without a
// failure. The rule can say otherwise.
func TestMissingLimit_ShardedQueue(t *testing.T) {
	for action, want := range map[Action]asynq.TaskState{
		"": asynq.TaskStateRetry, ActionArchive: asynq.TaskStateArchived, ActionDrop: gone, ActionRun: gone,
	} {
		t.Run(string(action), func(t *testing.T) {
			s := crawlSettings(1)
			s.rule = func(*asynq.Task) (Rule, error) {
				return Rule{Needs: []throttle.Need{{Limit: "hots", Key: "example.com"}}, OnNoLimit: action}, nil
			}
			virtual(t, s, func(t *testing.T, st *stack) {
				client := NewClient(st.rdb, crawl)
				info, err := client.Enqueue(NewTask("job", nil, ShardKey("example.com"), asynq.Queue("crawl")))
				st.must(err)
				time.Sleep(3 * time.Minute)
				found, err := st.tasks.GetTaskInfo(info.Queue, info.ID)
				if want == gone {
					if err == nil {
						t.Errorf("the job is %s, want it gone", found.State)
					}
				} else if err != nil || found.State != want || found.Retried != 0 {
					t.Errorf("job %+v, %v; want it %s and never retried", found, err, want)
				}
				st.wantRuns(map[Action]int{ActionRun: 1}[action])
			})
		})
	}
}
