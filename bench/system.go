package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/scheduler"
	"github.com/hibiken/asynq"
)

// system is a job system under a backlog's limit.
type system struct {
	name string
	run  func(b *bench, s spec) (outcome, error)
	// waiting returns the bytes of a waiting job in Redis beyond a scheduled one. Nil if the system
	// has no waiting jobs.
	waiting func(b *bench, s spec) (int64, error)
}

// outcome is the result of one run.
type outcome struct {
	starts  []start // in the order of admission
	denials int
	begin   int64   // the microsecond in which the worker was started
	added   usage   // by enqueuing before begin; about 0 if jobs arrive during the run
	spent   usage   // from begin on
	late    []int64 // microseconds, one for each start
}

// systems are all systems, headgate first.
var systems = []system{
	asynqSystem("headgate", startHeadgate),
	asynqSystem("wiki", startWiki),
	{name: "bullmq", run: runBullMQ},
}

// pick returns headgate and the systems with these names.
func pick(names []string) ([]system, error) {
	picked := systems[:1:1]
	for _, name := range names {
		i := slices.IndexFunc(systems[1:], func(s system) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("--against %s: want some of wiki, bullmq", name)
		}
		picked = append(picked, systems[1+i])
	}
	return picked, nil
}

// starter starts an asynq server under the limits of s. If blocked, the limits deny every job.
type starter func(b *bench, s spec, blocked bool, h *history) (stop func(), err error)

func asynqSystem(name string, start starter) system {
	return system{name: name, run: drainer(start), waiting: waiter(start)}
}

const taskType = "bench"

// handler only records that the job runs.
func handler(h *history) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		j, err := jobOf(task)
		if err != nil {
			return err
		}
		decision, _ := scheduler.GetDecision(ctx)
		h.started(j, visitOf(ctx), decision.Denials)
		return nil
	})
}

func jobOf(task *asynq.Task) (j job, err error) {
	return j, json.Unmarshal(task.Payload(), &j)
}

func (b *bench) enqueue(j job, opts ...asynq.Option) error {
	payload, err := json.Marshal(j)
	if err != nil {
		return err
	}
	client := asynq.NewClientFromRedisClient(b.rdb)
	_, err = client.EnqueueContext(b.ctx, asynq.NewTask(taskType, payload), opts...)
	return err
}

// serverConfig returns what all asynq servers here have in common.
func serverConfig(s spec) asynq.Config {
	return asynq.Config{Concurrency: s.Concurrency, LogLevel: asynq.ErrorLevel}
}

// drainer runs a backlog on an asynq server. The jobs are enqueued before the clock starts, unless
// they arrive.
func drainer(start starter) func(*bench, spec) (outcome, error) {
	return func(b *bench, s spec) (outcome, error) {
		if err := b.empty(); err != nil {
			return outcome{}, err
		}
		jobs := s.jobs()
		h := newHistory(len(jobs))
		added, err := b.spent(func() error {
			for i := 0; i < len(jobs) && s.Arrive == 0; i++ {
				if err := b.enqueue(jobs[i]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return outcome{}, err
		}
		begin := time.Now()
		spent, err := b.spent(func() error {
			stop, err := start(b, s, false, h)
			if err != nil {
				return err
			}
			defer stop()
			if s.Arrive > 0 {
				if err := b.arrive(jobs, s.Arrive, h); err != nil {
					return err
				}
			}
			return b.await(h.all, s, begin)
		})
		if err != nil {
			return outcome{}, err
		}
		starts := h.byAdmission()
		return outcome{
			starts: starts, denials: h.denials, begin: begin.UnixMicro(), added: added, spent: spent,
			late: latenesses(s, begin.UnixMicro(), starts, h.enqueued),
		}, nil
	}
}

// arrive enqueues the jobs evenly, that many a second.
func (b *bench) arrive(jobs []job, perSecond int, h *history) error {
	begin := time.Now()
	for i, j := range jobs {
		if err := b.sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond)))); err != nil {
			return err
		}
		h.enqueued = append(h.enqueued, time.Now().UnixMicro())
		if err := b.enqueue(j); err != nil {
			return err
		}
	}
	return nil
}

// await returns when all jobs have run, or patience ends.
func (b *bench) await(all <-chan struct{}, s spec, begin time.Time) error {
	timer := time.NewTimer(time.Until(begin.Add(s.patience())))
	defer timer.Stop()
	select {
	case <-all:
		return nil
	case <-timer.C:
		return nil
	case <-b.ctx.Done():
		return context.Cause(b.ctx)
	}
}

// waiter returns a function that measures the bytes of a denied job, less those of a scheduled job.
func waiter(start starter) func(*bench, spec) (int64, error) {
	return func(b *bench, s spec) (int64, error) {
		s.Jobs = s.Waiting
		s.Strict, s.Arrive = false, 0
		scheduled, err := b.grown(s, func(j job) error { return b.enqueue(j, asynq.ProcessIn(time.Hour)) },
			func(q *asynq.QueueInfo) int { return q.Scheduled })
		if err != nil {
			return 0, err
		}
		if err := b.empty(); err != nil {
			return 0, err
		}
		stop, err := start(b, s, true, newHistory(s.Jobs))
		if err != nil {
			return 0, err
		}
		defer stop()
		denied, err := b.grown(s, func(j job) error { return b.enqueue(j) },
			func(q *asynq.QueueInfo) int { return q.Retry })
		return (denied - scheduled) / int64(s.Jobs), err
	}
}

// grown returns by how much the dataset grows with all jobs of s. It enqueues one more job first,
// to leave out what does not grow with the jobs. there returns the number of jobs that have reached
// the wanted state.
func (b *bench) grown(s spec, enqueue func(job) error, there func(*asynq.QueueInfo) int) (int64, error) {
	inspector := asynq.NewInspectorFromRedisClient(b.rdb)
	settled := func(want int) (int64, error) {
		for b.ctx.Err() == nil {
			info, err := inspector.GetQueueInfo("default")
			if err != nil && !strings.Contains(err.Error(), "not exist") {
				return 0, err
			}
			if err == nil && there(info) == want {
				return b.dataset()
			}
			time.Sleep(10 * time.Millisecond)
		}
		return 0, context.Cause(b.ctx)
	}
	jobs := s.jobs()
	if err := enqueue(jobs[0]); err != nil {
		return 0, err
	}
	before, err := settled(1)
	if err != nil {
		return 0, err
	}
	for _, j := range jobs {
		if err := enqueue(j); err != nil {
			return 0, err
		}
	}
	after, err := settled(1 + len(jobs))
	return after - before, err
}
