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

// addEach streams the jobs: a bad line does not stop the others.
func addEach(ctx context.Context, source *source) error {
	sink := &sink{config: source.config, stderr: source.stdio.Err, refused: source.bad.add, ids: source.ids}
	source.input = eager{source.input, func() { sink.send(ctx) }}
	err := fill(ctx, sink, source.jobs(), cli.NewBar(source.stdio.Err, 0, "enqueue"))
	err = sink.close(err)
	return source.finish(sink.added, err)
}

// addAll reads all jobs before it adds the first.
func addAll(ctx context.Context, source *source) error {
	lines := slices.Collect(source.jobs())
	if source.failed() {
		return source.finish(0, nil)
	}
	sink := &sink{config: source.config, stderr: source.stdio.Err}
	if source.ids != nil { // they are printed when nothing can be taken back any more
		sink.ids = &ids{keep: true}
	}
	err := fill(ctx, sink, slices.Values(lines), cli.NewBar(source.stdio.Err, len(lines), "enqueue"))
	if err != nil {
		err = sink.undo(err)
	}
	err = sink.close(err)
	if source.ids != nil && sink.added == len(sink.ids.Added) {
		for _, added := range sink.ids.Added {
			source.ids.add(added)
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

// eager does something before it reads, which may take long.
type eager struct {
	io.Reader
	before func()
}

func (e eager) Read(p []byte) (int, error) {
	e.before()
	return e.Reader.Read(p)
}

// A sink adds jobs to their queues, in their order. It asks for Redis when the first comes.
type sink struct {
	config *config.Config
	stderr io.Writer
	// refused hears about a job that its queue does not take. Nil makes that
	// an error, and lets the sink undo what it did.
	refused func(line, error)
	// ids hears which jobs were added. Nil means that they are only counted.
	ids *ids

	rdb    redis.UniversalClient
	end    func() error
	alone  bool // whether jobs were added to the embedded Redis while no worker runs
	client *scheduler.Client

	taken  []line // that are to be added
	failed error  // why some could not be
	added  int
	queues map[string]bool // where added jobs are by now
	unkept map[string]bool // types of added jobs whose answers are not kept
	undoes [][2]string     // queue and id of the jobs that undo would delete
}

// open connects to the Redis to add to.
func (s *sink) open(ctx context.Context) error {
	rdb, end, err := s.config.Redis.Create(ctx, func(string) {})
	if err == nil {
		s.use(rdb, end)
	}
	return err
}

func (s *sink) use(rdb redis.UniversalClient, end func() error) {
	s.rdb, s.end, s.client, s.queues = rdb, end, scheduler.NewClient(rdb), map[string]bool{}
	s.unkept = map[string]bool{}
}

// mostTaken is how many jobs are added at once.
const mostTaken = 64

// add takes a job, which may be added together with later ones.
func (s *sink) add(ctx context.Context, l line) error {
	if s.rdb == nil {
		if err := s.open(ctx); err != nil {
			return err
		}
	}
	if s.taken = append(s.taken, l); len(s.taken) >= mostTaken {
		s.send(ctx)
	}
	return s.failed
}

// send has those added that were taken. What goes wrong the next add or flush says.
func (s *sink) send(ctx context.Context) {
	tasks := make([]*asynq.Task, len(s.taken))
	for i, l := range s.taken {
		tasks[i] = l.Task()
	}
	for i, answer := range s.client.EnqueueAll(ctx, tasks...) {
		if err := s.enqueued(s.taken[i], answer.Err); err != nil {
			s.failed = cmp.Or(s.failed, ctx.Err(), err) // asynq's error does not say that it was an interrupt
		}
	}
	s.taken = s.taken[:0]
}

// enqueued is told what became of a job. One that its queue refused is no error where
// somebody hears of that.
func (s *sink) enqueued(l line, err error) error {
	switch {
	case !l.ownID && s.there(l, err):
		// The id is a fresh one: this was the second try of a command whose
		// answer was lost.
		err = nil
	case errors.Is(err, asynq.ErrTaskIDConflict):
		err = &refusedError{fmt.Sprintf("id %q: queue %s has a job with this id already", l.ID, l.Queue)}
	case errors.Is(err, asynq.ErrDuplicateTask):
		err = &refusedError{fmt.Sprintf("unique: queue %s has a job with this type and payload already", l.Queue)}
	}
	if _, refused := errors.AsType[*refusedError](err); refused && s.refused != nil {
		s.refused(l, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s%w", l.where(), err)
	}
	s.added++
	if s.ids != nil {
		s.ids.add(addedJob{l.number, cli.Text(l.ID)})
	}
	if l.Retention == 0 && !s.unkept[l.Type] && s.config.Tasks.Unkept(l.Type) && !jobspec.Saves(l.Job) {
		s.unkept[l.Type] = true
	}
	s.queues[l.Queue] = true
	if s.refused == nil {
		s.undoes = append(s.undoes, [2]string{l.Queue, l.ID})
	}
	return nil
}

// there reports whether an error is that the job itself is in its queue.
func (s *sink) there(l line, err error) bool {
	if errors.Is(err, asynq.ErrDuplicateTask) { // which says less
		_, gone := asynq.NewInspectorFromRedisClient(s.rdb).GetTaskInfo(l.Queue, l.ID)
		return gone == nil
	}
	return errors.Is(err, asynq.ErrTaskIDConflict)
}

// flush is the end of it.
func (s *sink) flush(ctx context.Context) error {
	if s.send(ctx); s.failed == nil && s.added > 0 {
		s.tell()
		s.warn()
	}
	return s.failed
}

// tell names the types whose answers are gone when their jobs are done.
func (s *sink) tell() {
	for _, name := range slices.Sorted(maps.Keys(s.unkept)) {
		fmt.Fprintf(s.stderr, "enqueue: answers of %s are not kept for \"worker results\": want --retention 24h, or retention: 24h at the task in the config\n", name)
	}
}

// warn tells of the queues that no running worker takes jobs from or, where there is none, no
// worker with this config would. It says nothing if Redis fails: the jobs are safe by then.
func (s *sink) warn() {
	by, served := "no worker with this config would take", map[string]bool{}
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
		fmt.Fprintf(s.stderr, "enqueue: %s jobs of queue %s, only of %s: those wait until one does\n",
			by, strings.Join(left, ", "), strings.Join(slices.Sorted(maps.Keys(served)), ", "))
	}
}

// undo takes back everything that was added, the last job first, and adds to the error what
// it could not. A job that runs by now stays; so does everything if Redis is gone.
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
		return fmt.Errorf("%s\n%s added before that could not be taken back: %w", said(err), display.Count(left, "job"), reason)
	}
	return err
}

// close ends the connection and, if this command runs it, the embedded Redis. If no worker is
// running it tells what the jobs wait for. The error is that for which the command ends, if any.
func (s *sink) close(err error) error {
	if s.rdb == nil {
		return err
	}
	if lost := s.end(); lost != nil && s.config.Redis.IsZero() {
		s.added = 0
		if err != nil {
			return fmt.Errorf("%s\n%w", said(err), lost)
		}
		return lost
	}
	if s.alone {
		fmt.Fprintf(s.stderr, "enqueue: no Redis is configured and no worker is running: the jobs wait in %s for the next \"worker run\"\n", s.config.Redis.Folder())
	}
	return err
}

// said is the text of an error that is not all there is to say: of an interrupt, which would
// hide the rest, too.
func said(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return err.Error()
}
