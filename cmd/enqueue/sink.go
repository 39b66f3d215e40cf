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

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/words"
	"github.com/headgate/headgate/scheduler"
)

// addEach streams the jobs: a bad line does not stop the others.
func addEach(ctx context.Context, conf *config.Config, source *source, stdio cli.IO) error {
	sink, err := opener{conf, stdio.Err, source.bad.add, queueSet{}}.open(ctx)
	if err != nil {
		return err
	}
	defer sink.close()
	source.input = eager{source.input, func() { sink.send(ctx) }}
	err = fill(ctx, sink, source.jobs(), cli.NewBar(stdio.Err, 0, "enqueue"))
	return source.finish(stdio.Out, sink.added(), err)
}

// addAll reads all jobs before it adds the first.
func addAll(ctx context.Context, conf *config.Config, source *source, stdio cli.IO) error {
	lines := slices.Collect(source.jobs())
	if source.failed() {
		return source.finish(stdio.Out, 0, nil)
	}
	sink, err := opener{conf, stdio.Err, nil, queueSet{}}.open(ctx)
	if err != nil {
		return err
	}
	defer sink.close()
	err = fill(ctx, sink, slices.Values(lines), cli.NewBar(stdio.Err, len(lines), "enqueue"))
	if err == nil {
		return source.finish(stdio.Out, sink.added(), nil)
	}
	if left := sink.undo(ctx); left != nil {
		return fmt.Errorf("%w\n%w", err, left)
	}
	if err := source.say(stdio.Out, 0); err != nil {
		return err
	}
	return err
}

func fill(ctx context.Context, to sink, jobs iter.Seq[line], bar *cli.Bar) error {
	defer bar.Finish()
	for l := range jobs {
		if err := to.add(ctx, l); err != nil {
			return cmp.Or(ctx.Err(), err) // asynq's error does not say that it was an interrupt
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

// sink takes jobs, in their order.
type sink interface {
	// add takes a job, which may be added together with later ones.
	add(context.Context, line) error
	// send has those added that were taken. What goes wrong the next add or flush says.
	send(context.Context)
	// flush is the end of it.
	flush(context.Context) error
	added() int
	// undo takes back everything that was added, or says what it could not.
	undo(context.Context) error
	close()
}

type queueSet map[string]bool

type opener struct {
	config *config.Config
	stderr io.Writer
	// refused hears about a job that its queue does not take. Nil makes that
	// an error, and lets the sink undo what it did.
	refused func(line, error)
	// used is where added jobs are by now.
	used queueSet
}

// refuse is what comes of a job that was not added: nothing more, if its queue refused
// it and somebody hears of that.
func (o opener) refuse(l line, err error) error {
	if _, ok := errors.AsType[*refusedError](err); ok && o.refused != nil {
		o.refused(l, err)
		return nil
	}
	return fmt.Errorf("%s%w", l.where(), err)
}

// warn tells of the queues that no running worker takes jobs from or, where none is running,
// no worker with this config would. It says nothing if Redis fails: the jobs are safe by then.
func (o opener) warn(rdb redis.UniversalClient) {
	by, served := "no worker with this config would take", queueSet{}
	if rdb != nil {
		servers, err := asynq.NewInspectorFromRedisClient(rdb).Servers()
		if err != nil {
			return
		}
		for _, server := range servers {
			by = "no running worker takes"
			for queue := range server.Queues {
				served[queue] = true
			}
		}
	}
	if len(served) == 0 {
		for queue := range o.config.Queues {
			served[queue] = true
		}
	}
	left := slices.DeleteFunc(slices.Sorted(maps.Keys(o.used)), func(queue string) bool { return served[queue] })
	if len(left) > 0 {
		fmt.Fprintf(o.stderr, "enqueue: %s jobs of queue %s, only of %s: those wait until one does\n",
			by, strings.Join(left, ", "), strings.Join(slices.Sorted(maps.Keys(served)), ", "))
	}
}

// open finds the Redis to add to. Where there is none the jobs are kept for
// the next worker.
func (o opener) open(ctx context.Context) (sink, error) {
	if !o.config.Redis.IsZero() {
		rdb, err := o.config.Redis.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return o.queues(rdb), nil
	}
	folder, err := embedded.Default()
	if err != nil {
		return nil, err
	}
	if addr, ok := folder.Find(ctx); ok {
		return o.embedded(ctx, addr)
	}
	s := &replaced{}
	s.sink = &spool{opener: o, folder: folder, replace: s}
	return s, nil
}

// replaced is a sink that another one takes the place of.
type replaced struct{ sink }

func (o opener) embedded(ctx context.Context, addr string) (*queues, error) {
	rdb, err := config.ConnectEmbedded(ctx, addr)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(o.stderr, "enqueue: using the Redis within the running worker, at %s; a stop keeps what is in it, a crash loses its last second or two\n", addr)
	return o.queues(rdb), nil
}

func (o opener) queues(rdb redis.UniversalClient) *queues {
	return &queues{opener: o, rdb: rdb, client: scheduler.NewClient(rdb)}
}

type queues struct {
	opener
	rdb    redis.UniversalClient
	client *scheduler.Client
	taken  []line // that are to be added
	failed error  // why some could not be
	count  int
	undoes [][2]string // queue and id of the jobs that undo would delete
}

// mostTaken is how many jobs are added at once.
const mostTaken = 64

func (q *queues) add(ctx context.Context, l line) error {
	if q.taken = append(q.taken, l); len(q.taken) >= mostTaken {
		q.send(ctx)
	}
	return q.failed
}

func (q *queues) send(ctx context.Context) {
	tasks := make([]*asynq.Task, len(q.taken))
	for i, l := range q.taken {
		tasks[i] = l.Task()
	}
	for i, answer := range q.client.EnqueueAll(ctx, tasks...) {
		q.failed = cmp.Or(q.failed, q.enqueued(q.taken[i], answer.Err))
	}
	q.taken = q.taken[:0]
}

// enqueued is told what became of a job.
func (q *queues) enqueued(l line, err error) error {
	switch {
	case !l.ownID && q.there(l, err):
		// The id is a fresh one: this was the second try of a command whose
		// answer was lost.
		err = nil
	case errors.Is(err, asynq.ErrTaskIDConflict):
		err = sameID(l)
	case errors.Is(err, asynq.ErrDuplicateTask):
		err = sameWork(l)
	}
	if err != nil {
		return q.refuse(l, err)
	}
	q.count++
	q.used[l.Queue] = true
	if q.refused == nil {
		q.undoes = append(q.undoes, [2]string{l.Queue, l.ID})
	}
	return nil
}

// there reports whether an error is that the job itself is in its queue.
func (q *queues) there(l line, err error) bool {
	if errors.Is(err, asynq.ErrDuplicateTask) { // which says less
		_, gone := asynq.NewInspectorFromRedisClient(q.rdb).GetTaskInfo(l.Queue, l.ID)
		return gone == nil
	}
	return errors.Is(err, asynq.ErrTaskIDConflict)
}

func (q *queues) flush(ctx context.Context) error {
	if q.send(ctx); q.failed == nil {
		q.warn(q.rdb)
	}
	return q.failed
}

func (q *queues) added() int { return q.count }

// undo deletes the last job first. A job that runs by now stays; so does
// everything if Redis is gone.
func (q *queues) undo(context.Context) error {
	inspector := asynq.NewInspectorFromRedisClient(q.rdb)
	left := 0
	var reason error
	for _, job := range slices.Backward(q.undoes) {
		err := inspector.DeleteTask(job[0], job[1])
		if err == nil || errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		left, reason = left+1, err
		if _, gone := errors.AsType[net.Error](err); gone {
			left = len(q.undoes)
			break
		}
	}
	if left > 0 {
		return fmt.Errorf("%s added before that could not be taken back: %w", words.Count(left, "job"), reason)
	}
	return nil
}

func (q *queues) close() { _ = q.rdb.Close() }
