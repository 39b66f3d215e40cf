package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/scheduler"
)

// addJobs adds each job as it is read. With strict it reads all jobs first, and adds none if a line is
// bad.
func addJobs(ctx context.Context, source *source, strict bool) error {
	sink := &sink{source: source}
	jobs := source.jobs()
	if strict {
		lines := slices.Collect(jobs)
		if source.bad > 0 || source.err != nil {
			return source.finish(nil)
		}
		jobs = slices.Values(lines)
	} else {
		source.input = flushingReader{source.input, func() { sink.send(ctx) }}
	}
	err := sink.addAll(ctx, jobs)
	return source.finish(sink.close(err))
}

// flushingReader calls a function before each read, because a read can block.
type flushingReader struct {
	io.Reader
	before func()
}

func (e flushingReader) Read(p []byte) (int, error) {
	e.before()
	return e.Reader.Read(p)
}

// A sink adds jobs to their queues, in order. It connects to Redis when the first job is added.
type sink struct {
	source *source // gets the added jobs, and those that exist already
	rdb    redis.UniversalClient
	end    func() error
	client *scheduler.Client
	alone  bool // jobs were added to the embedded Redis while no worker runs

	batch  []line          // not added yet
	failed error           // the first error of a batch
	queues map[string]bool // of added jobs
	unkept map[string]bool // types of added jobs whose answers are not kept
}

func (s *sink) use(rdb redis.UniversalClient, end func() error) {
	s.rdb, s.end, s.client = rdb, end, s.source.config.NewClient(rdb)
	s.queues, s.unkept = map[string]bool{}, map[string]bool{}
}

// batchSize is the number of jobs that are added at once.
const batchSize = 64

func (s *sink) addAll(ctx context.Context, jobs iter.Seq[line]) error {
	for l := range jobs {
		if s.rdb == nil {
			rdb, end, err := s.source.config.Redis.Create(ctx, func(string) {})
			if err != nil {
				return err
			}
			s.use(rdb, end)
		}
		if s.batch = append(s.batch, l); len(s.batch) >= batchSize {
			s.send(ctx)
		}
		if s.failed != nil {
			return s.failed
		}
	}
	if s.send(ctx); s.failed == nil && s.source.added > 0 {
		s.warn()
	}
	return s.failed
}

// send adds the batch. It keeps the first error.
func (s *sink) send(ctx context.Context) {
	tasks := make([]*asynq.Task, len(s.batch))
	for i, l := range s.batch {
		tasks[i] = l.Task()
	}
	for i, answer := range s.client.EnqueueAll(ctx, tasks...) {
		if err := s.enqueued(s.batch[i], answer.Err); err != nil {
			s.failed = cmp.Or(s.failed, ctx.Err(), err) // asynq's error hides an interrupt
		}
	}
	s.batch = s.batch[:0]
}

// enqueued handles the result of one job.
func (s *sink) enqueued(l line, err error) error {
	switch {
	case err == nil, !l.ownID && s.isEnqueued(l, err):
		// If the random ID exists, an earlier try added this job, and the reply was lost.
	case errors.Is(err, asynq.ErrTaskIDConflict):
		s.source.reject(l, &existsError{fmt.Sprintf("id %q: queue %s already has a job with this ID", l.ID, l.Queue)})
		return nil
	case errors.Is(err, asynq.ErrDuplicateTask):
		s.source.reject(l, &existsError{fmt.Sprintf("unique: queue %s already has a job with this type and payload", l.Queue)})
		return nil
	default:
		return fmt.Errorf("%s%w", l.where(), err)
	}
	s.source.accept(l)
	if l.Retention == 0 && s.source.config.Tasks.Unkept(l.Type) && !jobspec.Saves(l.Job) {
		s.unkept[l.Type] = true
	}
	s.queues[l.Queue] = true
	return nil
}

// isEnqueued reports whether the error means that an earlier try has enqueued this job.
func (s *sink) isEnqueued(l line, err error) bool {
	if errors.Is(err, asynq.ErrDuplicateTask) { // perhaps because of another job
		return slices.ContainsFunc(s.source.config.Sharded.Names(l.Queue), func(queue string) bool {
			_, gone := asynq.NewInspectorFromRedisClient(s.rdb).GetTaskInfo(queue, l.ID)
			return gone == nil
		})
	}
	return errors.Is(err, asynq.ErrTaskIDConflict)
}

// warn warns of types whose answers are not kept, and of queues that no running worker serves. If no
// worker is running, it warns of queues that this config does not serve. It ignores errors of Redis,
// because the jobs are added.
func (s *sink) warn() {
	conf, stderr := s.source.config, s.source.stdio.Err
	for _, name := range slices.Sorted(maps.Keys(s.unkept)) {
		fmt.Fprintf(stderr, "enqueue: answers of %s are not kept for \"worker results\": use --retention 24h, or set retention: 24h for the task in the config\n", name)
	}
	servers, err := asynq.NewInspectorFromRedisClient(s.rdb).Servers()
	if err != nil {
		return
	}
	s.alone = conf.Redis.IsZero() && len(servers) == 0
	by, served := "no running worker takes", map[string]int{}
	for _, server := range servers {
		for queue, weight := range server.Queues {
			served[conf.Sharded.QueueOf(queue)] = weight
		}
	}
	if len(servers) == 0 {
		by, served = "a worker with this config would not take", conf.Queues.Weights()
	}
	left := slices.DeleteFunc(slices.Sorted(maps.Keys(s.queues)), func(queue string) bool { return served[queue] > 0 })
	if len(left) > 0 {
		fmt.Fprintf(stderr, "enqueue: %s jobs of queue %s, only of %s: the jobs wait until a worker serves it\n",
			by, strings.Join(left, ", "), strings.Join(slices.Sorted(maps.Keys(served)), ", "))
	}
}

// close closes the connection, and the embedded Redis if this command runs it. err is the error that
// ends the command, or nil.
func (s *sink) close(err error) error {
	if s.rdb == nil {
		return err
	}
	conf := s.source.config
	if lost := s.end(); lost != nil && conf.Redis.IsZero() {
		s.source.added = 0
		return lost // whatever else failed, the jobs are lost
	}
	if s.alone {
		fmt.Fprintf(s.source.stdio.Err, "enqueue: no Redis is configured and no worker is running: the jobs wait in %s for the next \"worker run\"\n", conf.Redis.Folder())
	}
	return err
}
