package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/usercode"
)

// minRetention is the shortest time for which asynq keeps a finished job. A replica that enqueues
// the job's tick again in that time gets asynq.ErrTaskIDConflict.
const minRetention = 5 * time.Minute

// handle enqueues or skips the next due tick of a schedule, if there is one. It returns the time of
// the next call, by Redis's clock. If ctx ends during the call, handle still finishes the tick.
func (r *Runner) handle(ctx context.Context, s *record, stored state, now time.Time) (next time.Time, err error) {
	if err := cmp.Or(ctx.Err(), stored.err); err != nil {
		return now, err
	}
	ctx = context.WithoutCancel(ctx)
	last := latest(moment(stored.DoneUntil), s.doneUntil) // s.doneUntil is later if Redis has lost writes
	if !s.specStored && stored.Spec != s.spec {           // the entry is new, changed, disabled or removed
		if _, err := r.advance(ctx, s.entry.Name, now, s.spec, "", ""); err != nil {
			return now, err
		}
		last = now
	}
	s.specStored, s.doneUntil = true, last
	if s.spec == "" {
		return now.Add(syncEvery), nil
	}
	for len(s.pending) > 0 && !s.pending[0].After(last) { // another replica has handled this tick
		s.pending = s.pending[1:]
	}
	if len(s.pending) == 0 {
		upTo := now
		if stored.Paused != 0 { // ticks before the pause still run
			upTo = earliest(now, moment(stored.Paused))
		}
		var missed time.Time
		if s.pending, missed = s.plan(last, upTo, now); !missed.IsZero() {
			return now, r.skip(ctx, s, missed)
		}
	}
	if len(s.pending) == 0 {
		return s.next(now), nil
	}
	return now, r.enqueueTick(ctx, s, stored, s.pending[0])
}

// skip drops all due ticks up to the tick missed: it advances the schedule to missed.
func (r *Runner) skip(ctx context.Context, s *record, missed time.Time) error {
	outcome := "skipped: missed"
	if s.err != nil { // this replica missed the tick because its last pass failed
		outcome = "failed: " + s.err.Error()
	}
	moved, err := r.advance(ctx, s.entry.Name, missed, s.spec, outcome, "")
	if err != nil {
		return err
	}
	if moved {
		r.log.Warn("skipped missed ticks of a schedule", "entry", s.entry.Name, "after", s.doneUntil, "up_to", missed)
	}
	s.doneUntil = missed
	return nil
}

// enqueueTick enqueues a job for a tick and advances the schedule. With OverlapSkip it enqueues no
// job while an earlier job is unfinished. After an error, any replica may try the tick again.
func (r *Runner) enqueueTick(ctx context.Context, s *record, stored state, tick time.Time) error {
	unfinished, err := r.unfinished(ctx, s, tick, stored.Job, stored.TriggeredJob)
	if err != nil {
		return err
	}
	outcome, job := "skipped: "+unfinished, ""
	var payload []byte
	var failure error
	if unfinished == "" {
		payload, failure = r.payload(s.schedule, tick)
		outcome = "enqueued"
	}
	if failure != nil {
		outcome = "failed: payload: " + failure.Error()
	}
	if outcome == "enqueued" {
		id := r.jobID(s.entry.Name, fmt.Sprint(tick.Unix()))
		if job, err = r.enqueue(ctx, s.entry, id, payload, s.entry.delay(id)); err != nil {
			return err
		}
	}
	moved, err := r.advance(ctx, s.entry.Name, tick, s.spec, outcome, job)
	if err != nil {
		return err
	}
	s.doneUntil = tick
	if moved && failure != nil {
		r.log.Error("cannot build the payload of a scheduled job", "entry", s.entry.Name, "tick", tick.In(s.zone), "err", failure)
	}
	return nil
}

// payload returns the payload of a tick, or nil if the entry has no function Payload.
func (r *Runner) payload(s schedule, tick time.Time) (payload []byte, err error) {
	if s.entry.Payload == nil {
		return nil, nil
	}
	return callProgram(r, "Payload", s.entry, func() ([]byte, error) { return s.entry.Payload(tick.In(s.zone)) })
}

// maxCall is the longest wait for a function of the program. After that its tick fails, so that
// other schedules go on before their ticks count as missed, and so that Run can end.
const maxCall = 20 * time.Second

// callProgram calls a function of the program for an entry, and returns its result.
func callProgram[T any](r *Runner, function string, e Entry, f func() (T, error)) (T, error) {
	return usercode.Call(context.Background(), maxCall, r.log, function+" of schedule "+e.Name, f)
}

// delay returns the delay of a job: whole seconds from 0 to the entry's Jitter. It depends only on
// the job's ID, so all replicas compute the same delay.
func (e Entry) delay(id string) time.Duration {
	steps := uint64(e.Jitter/time.Second) + 1
	hash := fnv.New64a()
	hash.Write([]byte(id))
	return time.Duration(hash.Sum64()%steps) * time.Second
}

// enqueue enqueues a job and returns "ID QUEUE". If the queue has shards, QUEUE is the job's shard.
// If a job of this ID exists, enqueue returns no error, because another replica or an earlier call
// has enqueued the job.
func (r *Runner) enqueue(ctx context.Context, e Entry, id string, payload []byte, delay time.Duration) (job string, err error) {
	job, err = callProgram(r, "the client", e, func() (string, error) {
		opts, queue := e.options(id, delay)
		task := asynq.NewTask(e.Type, payload)
		info, err := r.client.EnqueueContext(ctx, task, opts...)
		switch client, isSharded := r.client.(queueFinder); {
		case err == nil && info != nil:
			queue = info.Queue
		case errors.Is(err, asynq.ErrTaskIDConflict):
			if err = nil; isSharded {
				queue, err = client.QueueOf(task, opts...)
			}
		}
		return id + " " + queue, err
	})
	if err != nil {
		return "", fmt.Errorf("schedule %s: enqueueing %s: %w", e.Name, id, err)
	}
	return job, nil
}

// queueFinder is the method of scheduler.Client that finds the shard of a job.
type queueFinder interface {
	QueueOf(task *asynq.Task, opts ...asynq.Option) (string, error)
}

// options returns the options of a job, and the name of its queue.
func (e Entry) options(id string, delay time.Duration) (opts []asynq.Option, queue string) {
	retain := minRetention
	for _, option := range e.Options {
		if option.Type() == asynq.RetentionOpt {
			retain = max(retain, option.Value().(time.Duration))
		} else {
			opts = append(opts, option)
		}
	}
	queue = cmp.Or(e.Queue, "default")
	opts = append(opts, asynq.TaskID(id), asynq.Queue(queue), asynq.Retention(retain))
	if delay > 0 {
		opts = append(opts, asynq.ProcessIn(delay))
	}
	return opts, queue
}

// jobID returns the ID of a job of an entry. suffix is the tick in Unix seconds, or "run-" and the
// time of a Trigger in Unix microseconds. Names have no slash, so IDs of two scopes differ.
func (r *Runner) jobID(name, suffix string) string {
	id := name + "@" + suffix
	if r.scope != defaultScope {
		id = r.scope + "/" + id
	}
	return id
}

// unfinished returns the first of the jobs that is unfinished at a tick, with its state, or "". Each
// job is "ID QUEUE", or empty for none. Without OverlapSkip, unfinished returns "".
func (r *Runner) unfinished(ctx context.Context, s *record, tick time.Time, jobs ...string) (string, error) {
	for _, job := range jobs {
		id, queue, ok := strings.Cut(job, " ")
		if s.entry.Overlap != OverlapSkip || !ok {
			continue
		}
		info, err := r.inspector.GetTaskInfo(queue, id)
		if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		state := ""
		if err == nil {
			state, err = r.unfinishedState(ctx, s, tick, info)
		}
		if err != nil {
			return "", fmt.Errorf("looking for job %s in queue %s: %w", id, queue, err)
		}
		if state != "" {
			return "job " + id + " " + state, nil
		}
	}
	return "", nil
}

// unfinishedState describes the state of an unfinished job, or returns "" if the job does not count as
// unfinished.
func (r *Runner) unfinishedState(ctx context.Context, s *record, tick time.Time, info *asynq.TaskInfo) (string, error) {
	switch info.State {
	case asynq.TaskStateCompleted, asynq.TaskStateArchived:
		return "", nil
	case asynq.TaskStateRetry:
		denied, err := asynqdb.New(r.rdb).IsDenied(ctx, info.Queue, info.ID, info.NextProcessAt)
		if err != nil || denied {
			return "waits for permits", err
		}
		if s.entry.OverlapCounts != CountsRetrying && info.NextProcessAt.After(s.next(s.next(tick))) {
			return "", nil
		}
		return "comes again at " + info.NextProcessAt.UTC().Format(time.RFC3339), nil
	}
	return "is " + info.State.String(), nil
}
