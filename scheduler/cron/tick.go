package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

const (
	// maxAhead is how far a state may be ahead of Redis's clock before we take
	// it that the clock was wrong then. lua/cron/move.lua has it, too.
	maxAhead = 24 * time.Hour
	// retainFor is how long a finished job keeps its id at least.
	retainFor = 5 * time.Minute
)

// tend takes a schedule past the next tick that is due, and sets when to look at it again.
// A tick that has begun is finished even if ctx ends.
func (r *Runner) tend(ctx context.Context, s *schedule, v state) error {
	if ctx.Err() != nil || v.err != nil {
		return cmp.Or(ctx.Err(), v.err)
	}
	ctx = context.WithoutCancel(ctx)
	name, spec, far := s.entry.Name, s.timetable.spec, v.now.Add(maxAhead)
	if s.entry.Disabled {
		if v.spec != "" {
			if _, err := r.move(ctx, name, time.Time{}, "", "", jobRef{}); err != nil {
				return err
			}
		}
		s.adopted = true
		return nil
	}
	if s.known.After(far) {
		s.known = time.Time{}
	}
	ahead := v.last.After(far)
	if ahead { // or the schedule would be silent until Redis's clock is there again
		r.log.Warn("schedule was ahead of Redis's clock, ticks count from now on", "entry", name, "last", v.last, "now", v.now)
	}
	s.look = v.now
	if ahead || !s.adopted && v.spec != spec { // a new entry, or a new cron line
		if _, err := r.move(ctx, name, v.now, spec, "", jobRef{}); err != nil {
			return err
		}
		s.adopted = true
		return nil
	}
	s.adopted = true
	done, err := r.tick(ctx, s, v)
	if done {
		s.look = s.timetable.next(v.now)
	}
	return err
}

// tick deals with the next tick that is due: the tick is enqueued, or the state moves
// past it without a job. done says that there was none.
func (r *Runner) tick(ctx context.Context, s *schedule, v state) (done bool, err error) {
	// What was due before a pause still runs.
	upTo := v.now
	if !v.paused.IsZero() {
		upTo = earliest(upTo, v.paused)
	}
	// known is newer than last if Redis lost the state's latest moves.
	from := latest(v.last, s.known)
	run, missed := s.dueTick(from, upTo, v.now)
	var job jobRef
	var failure error
	outcome := ""
	switch {
	case run.IsZero() && missed.IsZero():
		s.known = from
		return true, nil
	case !run.IsZero():
		if job, outcome, failure, err = r.carryOut(ctx, s, v, run); err != nil {
			return false, err
		}
	case missed.Equal(s.refused):
		run, missed, failure = missed, time.Time{}, s.reason
	default:
		run, outcome = missed, "skipped: missed"
	}
	if failure != nil {
		outcome = "failed: " + failure.Error()
	}
	moved, err := r.move(ctx, s.entry.Name, run, s.timetable.spec, outcome, job)
	if err != nil {
		return false, err
	}
	s.known = latest(from, run)
	if moved && !missed.IsZero() {
		r.log.Warn("schedule missed ticks", "entry", s.entry.Name, "after", from, "up_to", missed)
	}
	if moved && failure != nil {
		r.log.Error("schedule has no job for a tick", "entry", s.entry.Name, "tick", run.In(s.timetable.zone), "err", failure)
	}
	return false, nil
}

// carryOut enqueues a tick, unless the job before is to be waited for. failure says why the
// tick gets no job at all. After an error the tick is tried again, by this replica or another.
func (r *Runner) carryOut(ctx context.Context, s *schedule, v state, tick time.Time) (job jobRef, outcome string, failure, err error) {
	if s.entry.Overlap == OverlapSkip {
		running, err := r.unfinished(v.job, v.extra)
		if running || err != nil {
			return job, "skipped: still running", nil, err
		}
	}
	payload, err := r.payload(s, tick)
	if err != nil {
		return job, "", fmt.Errorf("payload: %w", err), nil
	}
	id := r.jobID(s.entry.Name, unixText(tick))
	job, err = r.enqueue(ctx, s.entry, id, payload, s.delay(id))
	if err != nil {
		s.refused, s.reason = tick, err
		err = fmt.Errorf("schedule %s: enqueueing %s: %w", s.entry.Name, id, err)
	}
	return job, "enqueued", nil, err
}

// payload is the entry's for a tick. One that panics or ends its goroutine fails the tick.
func (r *Runner) payload(s *schedule, tick time.Time) ([]byte, error) {
	if s.entry.Payload == nil {
		return nil, nil
	}
	return guard(r.log, s.entry, "payload of a schedule", func() ([]byte, error) {
		return s.entry.Payload(tick.In(s.timetable.zone))
	})
}

// guard calls the program's code in a goroutine of its own. Without that a panic in it would
// end the process, and one that ends its goroutine would be called again and again.
func guard[T any](log *slog.Logger, e Entry, what string, f func() (T, error)) (result T, err error) {
	err = errors.New("its function ended its goroutine and did not return")
	var group sync.WaitGroup
	group.Go(func() {
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("panic: %v", cause)
				log.Error(what+" panicked", "entry", e.Name, "panic", cause, "stack", string(debug.Stack()))
			}
		}()
		result, err = f()
	})
	group.Wait()
	return result, err
}

// delay is a job's share of the entry's jitter: random looking, but the same
// for every replica, so that it does not matter which one enqueues the tick.
func (s *schedule) delay(id string) time.Duration {
	steps := uint64(s.entry.Jitter/time.Second) + 1
	// By the ID, so that the ticks of one entry differ, and entries of one moment, too.
	hash := fnv.New64a()
	hash.Write([]byte(id))
	return time.Duration(hash.Sum64()%steps) * time.Second
}

// enqueue adds a job under an id. A job that is there already is as good as a
// new one: another replica, or a try whose answer got lost, has enqueued the tick.
func (r *Runner) enqueue(ctx context.Context, e Entry, id string, payload []byte, delay time.Duration) (jobRef, error) {
	queue := cmp.Or(e.Queue, "default")
	// A late replica's try has to find the id taken, even if the job is done.
	retain := retainFor
	var opts []asynq.Option
	for _, option := range e.Options {
		if option.Type() == asynq.RetentionOpt {
			retain = max(retain, option.Value().(time.Duration))
			continue
		}
		opts = append(opts, option)
	}
	opts = append(opts, asynq.TaskID(id), asynq.Queue(queue), asynq.Retention(retain))
	if delay > 0 {
		opts = append(opts, asynq.ProcessIn(delay))
	}
	_, err := guard(r.log, e, "enqueuer of a schedule", func() (*asynq.TaskInfo, error) {
		return r.enqueuer.EnqueueContext(ctx, asynq.NewTask(e.Type, payload), opts...)
	})
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
		return jobRef{}, err
	}
	return jobRef{id, queue}, nil
}

// jobID is the id of one of an entry's jobs. Names have no slash, so no two
// scopes share an id.
func (r *Runner) jobID(name, job string) string {
	id := name + "@" + job
	if r.scope != defaultScope {
		id = r.scope + "/" + id
	}
	return id
}

// unfinished reports whether any of the jobs still waits or runs. One that was
// completed, archived or deleted is finished; one that asynq will try again is not.
func (r *Runner) unfinished(jobs ...jobRef) (bool, error) {
	for _, job := range jobs {
		if job.id == "" {
			continue
		}
		info, err := r.inspector.GetTaskInfo(job.queue, job.id)
		switch {
		case errors.Is(err, asynq.ErrTaskNotFound), errors.Is(err, asynq.ErrQueueNotFound):
		case err != nil:
			return false, fmt.Errorf("looking for job %s in queue %s: %w", job.id, job.queue, err)
		case info.State != asynq.TaskStateCompleted && info.State != asynq.TaskStateArchived:
			return true, nil
		}
	}
	return false, nil
}
