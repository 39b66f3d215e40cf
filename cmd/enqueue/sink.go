package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/scheduler"
)

// addEach adds each job as it is read. Bad lines do not stop it.
func addEach(ctx context.Context, source *source) error {
	sink := &sink{config: source.config, stderr: source.stdio.Err, refused: source.bad.add, shown: source.showID}
	source.input = eager{source.input, func() { sink.send(ctx) }}
	err := fill(ctx, sink, source.jobs(), cli.NewBar(source.stdio.Err, 0, "enqueue"))
	err = sink.close(err)
	return source.finish(sink.added, err)
}

// addAll reads all jobs before it adds the first. It adds all or none.
func addAll(ctx context.Context, source *source) error {
	lines := slices.Collect(source.jobs())
	if source.failed() {
		return source.finish(0, nil)
	}
	var added []addedJob // shown when nothing can be undone any more
	sink := &sink{config: source.config, stderr: source.stdio.Err, shown: func(job addedJob) { added = append(added, job) }}
	err := fill(ctx, sink, slices.Values(lines), cli.NewBar(source.stdio.Err, len(lines), "enqueue"))
	if err != nil {
		err = sink.undo(err)
	}
	err = sink.close(err)
	if sink.added == len(added) {
		for _, job := range added {
			source.showID(job)
		}
	}
	return source.finish(sink.added, err)
}

func fill(ctx context.Context, to *sink, jobs iter.Seq[line], bar *cli.Bar) error {
	defer bar.Finish()
	for l := range jobs {
		if err := to.add(ctx, l); err != nil {
			return err
		}
		bar.Add()
	}
	return to.flush(ctx)
}

// eager calls a function before each read, because a read can block.
type eager struct {
	io.Reader
	before func()
}

func (e eager) Read(p []byte) (int, error) {
	e.before()
	return e.Reader.Read(p)
}

// A sink adds jobs to their queues, in order. It connects to Redis when the first job is added.
type sink struct {
	config *config.Config
	stderr io.Writer
	// refused gets the jobs that exist already. If it is nil, an existing job is an error, and undo can
	// delete the added jobs.
	refused func(line, error)
	// shown gets the IDs of added jobs, unless it is nil.
	shown func(addedJob)

	rdb    redis.UniversalClient
	end    func() error
	alone  bool // jobs were added to the embedded Redis while no worker runs
	client *scheduler.Client

	batch  []line // not added yet
	failed error  // the first error of a batch
	added  int
	queues map[string]bool // of added jobs
	unkept map[string]bool // types of added jobs whose answers are not kept
	undoes [][2]string     // queue and ID of added jobs, for undo
}

func (s *sink) use(rdb redis.UniversalClient, end func() error) {
	s.rdb, s.end, s.client = rdb, end, scheduler.NewClient(rdb)
	s.queues, s.unkept = map[string]bool{}, map[string]bool{}
}

// batchSize is the number of jobs that are added at once.
const batchSize = 64

// add adds a job to the batch.
func (s *sink) add(ctx context.Context, l line) error {
	if s.rdb == nil {
		rdb, end, err := s.config.Redis.Create(ctx, func(string) {})
		if err != nil {
			return err
		}
		s.use(rdb, end)
	}
	if s.batch = append(s.batch, l); len(s.batch) >= batchSize {
		s.send(ctx)
	}
	return s.failed
}

// send adds the batch. The next add or flush returns its error.
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
	case !l.ownID && s.there(l, err):
		// The ID is random, so a retry after a lost reply found the job of the first try.
		err = nil
	case errors.Is(err, asynq.ErrTaskIDConflict):
		err = &refusedError{fmt.Sprintf("id %q: queue %s already has a job with this ID", l.ID, l.Queue)}
	case errors.Is(err, asynq.ErrDuplicateTask):
		err = &refusedError{fmt.Sprintf("unique: queue %s already has a job with this type and payload", l.Queue)}
	}
	if _, refused := errors.AsType[*refusedError](err); refused && s.refused != nil {
		s.refused(l, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s%w", l.where(), err)
	}
	s.added++
	if s.shown != nil {
		s.shown(addedJob{l.number, cli.Text(l.ID)})
	}
	if l.Retention == 0 && s.config.Tasks.Unkept(l.Type) && !jobspec.Saves(l.Job) {
		s.unkept[l.Type] = true
	}
	s.queues[l.Queue] = true
	if s.refused == nil {
		s.undoes = append(s.undoes, [2]string{l.Queue, l.ID})
	}
	return nil
}

// there reports whether the error means that this very job is in its queue.
func (s *sink) there(l line, err error) bool {
	if errors.Is(err, asynq.ErrDuplicateTask) { // perhaps because of another job
		_, gone := asynq.NewInspectorFromRedisClient(s.rdb).GetTaskInfo(l.Queue, l.ID)
		return gone == nil
	}
	return errors.Is(err, asynq.ErrTaskIDConflict)
}

// flush adds the last batch and prints warnings.
func (s *sink) flush(ctx context.Context) error {
	if s.send(ctx); s.failed == nil && s.added > 0 {
		s.warnUnkept()
		s.warnUnserved()
	}
	return s.failed
}

// warnUnkept names the types whose answers are not kept.
func (s *sink) warnUnkept() {
	for _, name := range slices.Sorted(maps.Keys(s.unkept)) {
		fmt.Fprintf(s.stderr, "enqueue: answers of %s are not kept for \"worker results\": use --retention 24h, or set retention: 24h for the task in the config\n", name)
	}
}

// warnUnserved names queues that no running worker serves. If no worker is running, it names queues
// that this config does not serve. It ignores errors of Redis, because the jobs are added.
func (s *sink) warnUnserved() {
	by, served := "a worker with this config would not take", map[string]bool{}
	servers, err := asynq.NewInspectorFromRedisClient(s.rdb).Servers()
	if err != nil {
		return
	}
	s.alone = s.config.Redis.IsZero() && len(servers) == 0
	for _, server := range servers {
		by = "no running worker takes"
		for queue := range server.Queues {
			served[queue] = true
		}
	}
	if len(served) == 0 {
		for queue := range s.config.Queues {
			served[queue] = true
		}
	}
	left := slices.DeleteFunc(slices.Sorted(maps.Keys(s.queues)), func(queue string) bool { return served[queue] })
	if len(left) > 0 {
		fmt.Fprintf(s.stderr, "enqueue: %s jobs of queue %s, only of %s: the jobs wait until a worker serves it\n",
			by, strings.Join(left, ", "), strings.Join(slices.Sorted(maps.Keys(served)), ", "))
	}
}

// undo deletes the added jobs, the last one first. The error says how many could not be deleted,
// because they are running or Redis is away.
func (s *sink) undo(err error) error {
	left := 0
	var reason error
	for _, job := range slices.Backward(s.undoes) {
		err := asynq.NewInspectorFromRedisClient(s.rdb).DeleteTask(job[0], job[1])
		if err == nil || errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		left, reason = left+1, err
		if _, gone := errors.AsType[net.Error](err); gone {
			left = len(s.undoes)
			break
		}
	}
	s.added = left
	if left > 0 {
		return fmt.Errorf("%s\n%s added before that could not be deleted: %w", message(err), display.Count(left, "job"), reason)
	}
	return err
}

// close closes the connection, and the embedded Redis if this command runs it. err is the error that
// ends the command, or nil.
func (s *sink) close(err error) error {
	if s.rdb == nil {
		return err
	}
	if lost := s.end(); lost != nil && s.config.Redis.IsZero() {
		s.added = 0
		if err != nil {
			return fmt.Errorf("%s\n%w", message(err), lost)
		}
		return lost
	}
	if s.alone {
		fmt.Fprintf(s.stderr, "enqueue: no Redis is configured and no worker is running: the jobs wait in %s for the next \"worker run\"\n", s.config.Redis.Folder())
	}
	return err
}

// message returns the text of an error that is joined with others. An interrupt is not wrapped,
// because Main would print nothing else.
func message(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return err.Error()
}
