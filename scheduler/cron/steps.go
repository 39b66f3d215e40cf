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
	// helpAfter is how old another replica's intent has to be before we carry
	// it out: the state counts whole seconds, so it is two to three seconds.
	helpAfter = 3 * time.Second
	// maxAhead is how far a state may be ahead of Redis's clock before we take
	// it that the clock was wrong then. It is more than a mistaken time zone
	// makes, as turning the clock back by so little costs only a wait, while
	// starting anew would enqueue ticks again.
	maxAhead = 24 * time.Hour
	// freshFor is how old a state may be when a job is enqueued because of it.
	freshFor = 5 * time.Second
	// retainFor is how long a finished job keeps its id at least. It has to be
	// far longer than freshFor.
	retainFor = 5 * time.Minute
)

// tend takes a schedule up to the end of the next tick that is due, and sets s.look, when
// to look at it again, if no tick is due. One tick a call: a schedule that
// catches up on thousands of ticks must not keep the others waiting.
// A tick that has begun is finished even if ctx ends.
func (r *Runner) tend(ctx context.Context, s *schedule, v *view) error {
	if v.err != nil {
		return v.err
	}
	for before := v.tick; ctx.Err() == nil && v.tick.Equal(before); {
		if v.ahead(s.known) {
			s.known = time.Time{}
		}
		s.known = latest(s.known, v.last)
		s.look = time.Time{}
		if err := r.step(context.WithoutCancel(ctx), s, v); err != nil || !s.look.IsZero() {
			return err
		}
	}
	return ctx.Err()
}

// ahead reports whether a moment is so far in Redis's future that its clock
// must have been set back since.
func (v *view) ahead(t time.Time) bool { return t.After(v.now.Add(maxAhead)) }

// step takes a schedule one step further, and sets s.look if nothing more is due. What is
// to be done follows from the state alone, in this order, so it does not matter which
// replica was at work before and where it stopped.
func (r *Runner) step(ctx context.Context, s *schedule, v *view) error {
	to := v.state
	switch {
	case v.ahead(v.last) || v.ahead(v.intentAt):
		// Otherwise the schedule would be silent until Redis's clock is there again.
		r.log.Warn("schedule was ahead of Redis's clock, ticks count from now on",
			"entry", s.entry.Name, "last", v.last, "now", v.now)
		to.last, to.intent, to.intentAt = v.now, time.Time{}, time.Time{}
		s.known = v.now
	case !v.intent.IsZero() && v.now.Before(v.intentAt.Add(helpAfter)): // its replica is at it
		s.look = v.intentAt.Add(helpAfter)
		return nil
	case !v.intent.IsZero() && s.forgotten(v) && s.entry.Missed == MissedSkip:
		after, tick := v.last, v.intent
		moved, err := r.skip(ctx, s, v, tick, "missed")
		if moved {
			r.tellMissed(s, "1", after, tick)
		}
		return err
	case !v.intent.IsZero(): // its replica is gone
		return r.carryOut(ctx, s, v)
	case s.leaving:
		// The entry was removed or disabled here. The state is marked as that of none, so that it
		// starts anew when it comes back; ticks that were due before are done first. It stays a
		// while for what it counts, and for as long as the entry is paused.
		if s.adopted && v.spec == s.timetable.spec {
			if done, err := r.tick(ctx, s, s.timetable, v); !done {
				return err
			}
		}
		if v.last.IsZero() || v.spec == "" {
			s.released, s.look = true, v.now.Add(forgetAfter)
			return nil
		}
		to.spec = ""
	case v.last.IsZero(), s.adopted && v.spec == "":
		// Redis does not know the entry: ticks count from now on, or from the last that we know
		// of if Redis has lost it. Or the config of another replica has no such entry (any more):
		// nobody else would keep the state from being forgotten while the entry is paused or has
		// no tick for long.
		to.last, to.spec = cmp.Or(v.last, s.known, v.now), s.timetable.spec
	case !s.adopted && v.spec != s.timetable.spec:
		// The state is of another cron line, whose ticks are done first. The new line's count
		// from now on: it must not find that it has missed what it was never there for.
		if before, err := timetableOf(v.spec); err == nil {
			if done, err := r.tick(ctx, s, before, v); !done {
				return err
			}
		}
		to.last, to.spec = latest(v.last, v.now), s.timetable.spec
	default:
		s.adopted = true
		done, err := r.tick(ctx, s, s.timetable, v)
		if done {
			s.look = s.timetable.next(v.now)
		}
		return err
	}
	_, err := r.move(ctx, s, v, to)
	return err
}

// forgotten reports whether nobody can know any more if the tick that was begun has a
// job: it may be done, and its id free again. Who has tried it meanwhile knows.
func (s *schedule) forgotten(v *view) bool {
	const long = retainFor - freshFor
	return v.now.Sub(v.intentAt) > long && time.Since(s.tried) > long
}

// tick deals with the next tick that is due by a timetable: it is enqueued, or
// the state moves past it without a job. done says that there was none.
//
// Whether the job before is unfinished is asked before the tick is claimed. The
// answer holds: if another replica has dealt with a tick meanwhile, the claim
// fails and all is asked again.
func (r *Runner) tick(ctx context.Context, s *schedule, by *timetable, v *view) (done bool, err error) {
	// A pause stops the clock at the moment it began: what was due before it
	// still runs, and is not missed however long the pause lasts.
	upTo := v.now
	if !v.paused.IsZero() {
		upTo = earliest(upTo, v.paused)
	}
	// known is newer than last if Redis lost the state's latest moves.
	from := latest(v.last, s.known)
	run, missed := s.dueTick(by, from, upTo, v.now)
	if run.IsZero() && missed.IsZero() {
		return true, nil
	}
	running, moved := false, false
	if !run.IsZero() && s.entry.Overlap == OverlapSkip {
		if running, err = r.unfinished(v.job, v.extra); err != nil {
			return false, err
		}
	}
	switch {
	case run.IsZero():
		moved, err = r.skip(ctx, s, v, missed, "missed")
	case running:
		moved, err = r.skip(ctx, s, v, run, "still running")
	default: // the tick is ours now, or some other replica's if it was faster
		to := v.state
		to.intent, to.intentAt = run, v.now
		moved, err = r.move(ctx, s, v, to)
	}
	if moved && !missed.IsZero() {
		r.tellMissed(s, countTicks(by, from, missed), from, missed)
	}
	if moved && !v.intent.IsZero() {
		err = r.carryOut(ctx, s, v)
	}
	return false, err
}

// tellMissed logs that ticks came to light too late, and get no job.
func (r *Runner) tellMissed(s *schedule, ticks string, after, upTo time.Time) {
	r.log.Warn("schedule missed ticks", "entry", s.entry.Name, "ticks", ticks, "after", after, "up_to", upTo)
}

// skip moves the state past a tick, and those before it, without a job.
func (r *Runner) skip(ctx context.Context, s *schedule, v *view, tick time.Time, why string) (bool, error) {
	to := v.state
	to.last, to.tick, to.outcome = tick, tick, "skipped: "+why
	to.intent, to.intentAt = time.Time{}, time.Time{}
	to.skipped++
	return r.move(ctx, s, v, to)
}

// carryOut enqueues the tick that the state intends, and moves the state past
// it. It leaves the intent if the enqueuer fails, to be tried again, by this replica
// or another.
//
// The payload is made before the state is looked at once more: it is the one thing
// here that can take any time, and what is enqueued on the ground of an old state
// could be a job that has been done and forgotten.
func (r *Runner) carryOut(ctx context.Context, s *schedule, v *view) error {
	tick := v.intent
	payload, err := r.payload(s, tick)
	if time.Since(v.seen) > freshFor { // the payload took its time
		err := r.refresh(ctx, s.entry.Name, v)
		if err != nil || !v.intent.Equal(tick) {
			return err
		}
	}
	// Whatever comes of it now, the tick is behind us.
	to := v.state
	to.last, to.tick = tick, tick
	to.intent, to.intentAt = time.Time{}, time.Time{}
	if err != nil {
		err = fmt.Errorf("payload: %w", err)
	} else {
		id := r.jobID(s.entry.Name, unixText(tick))
		s.tried = time.Now()
		var job jobRef
		if job, err = r.enqueue(ctx, s.entry, id, payload, s.delay(id)); err == nil {
			to.outcome, to.job = "enqueued", job
			to.enqueued++
		} else if !s.hopeless(v) {
			return fmt.Errorf("schedule %s: enqueueing %s: %w", s.entry.Name, id, err)
		}
	}
	if err != nil {
		to.outcome = "failed: " + err.Error()
		to.failed++
	}
	moved, moveErr := r.move(ctx, s, v, to)
	if moved && err != nil {
		r.log.Error("schedule has no job for a tick", "entry", s.entry.Name,
			"tick", to.tick.In(s.timetable.zone), "err", err)
	}
	return moveErr
}

// hopeless reports whether to give up a tick that the enqueuer refuses: once it
// would count as missed and the next is due, unless missed ticks all run. A
// refusal may be about this one job, such as a payload that is too large, and
// must not hold up the entry for good.
func (s *schedule) hopeless(v *view) bool {
	late := v.now.Sub(v.intent) > missedAfter
	return late && s.entry.Missed != MissedAll && !s.timetable.next(v.intent).After(v.now)
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
// end the process, and then each replica that comes to help; and one that ends its goroutine
// would be called again and again.
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
