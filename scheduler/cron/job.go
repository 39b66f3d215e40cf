package cron

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

const (
	// freshFor is how old a state may be when a job is enqueued because of it.
	freshFor = 5 * time.Second
	// retainFor is how long a finished job keeps its id at least. It has to be
	// far longer than freshFor.
	retainFor = 5 * time.Minute
)

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

// payload is the entry's for a tick. One that panics fails the tick: left to
// itself it would end the process, and then each replica that comes to help.
func (r *Runner) payload(s *schedule, tick time.Time) (payload []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			r.log.Error("payload of a schedule panicked", "entry", s.entry.Name,
				"panic", cause, "stack", string(debug.Stack()))
		}
	}()
	if s.entry.Payload == nil {
		return nil, nil
	}
	return s.entry.Payload(tick.In(s.timetable.zone))
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
	_, err := r.enqueuer.EnqueueContext(ctx, asynq.NewTask(e.Type, payload), opts...)
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

// Origin is where a job comes from.
type Origin struct {
	Scope, Entry string
	// At is the tick, or the moment of the Trigger if Triggered.
	At        time.Time
	Triggered bool
}

// OriginOf reads the id of a job that an entry enqueued. It reports false for
// every other id, but cannot tell one that somebody has made up in the same form.
// The scope must have the letters of an entry's name.
func OriginOf(id string) (o Origin, ok bool) {
	scope, name, scoped := strings.Cut(id, "/")
	if !scoped {
		scope, name = defaultScope, id
	}
	entry, when, _ := strings.Cut(name, "@")
	number, triggered := strings.CutPrefix(when, "run-")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !entryName.MatchString(entry) || !entryName.MatchString(scope) {
		return Origin{}, false
	}
	at := time.Unix(n, 0)
	if triggered {
		at = time.UnixMicro(n)
	}
	return Origin{scope, entry, at, triggered}, true
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
