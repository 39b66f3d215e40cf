package inspect

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/attempts"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// The states that a job has beside asynq's. asynq takes one that waits for a permit for
// one that waits for its next attempt, or has it pending once more.
const (
	Waiting = "waiting"
	Called  = "called"
)

// States are all states that a job can be in, in the order in which Jobs tells them.
var States = []string{"active", Called, Waiting, "pending", "retry", "scheduled", "archived", "completed"}

// Job is a job with the state that it is really in.
type Job struct {
	*asynq.TaskInfo
	State string // one of States
	// Since is when it came into its state: zero where nobody knows, as of a
	// scheduled one. One in retry is so since it failed last.
	Since time.Time
	Place *lanes.Place // of one that waits or is called
}

// JobID is which job it is.
func (j Job) JobID() throttle.JobID { return throttle.JobID{Queue: j.Queue, ID: j.ID} }

// look tells the real states of jobs of one queue, a hundred at most, in a round trip
// or two. asynq has all of them in the same state.
func (q *Queues) look(ctx context.Context, infos []*asynq.TaskInfo) ([]Job, error) {
	jobs := make([]Job, len(infos))
	for i, info := range infos {
		jobs[i] = Job{TaskInfo: info, State: info.State.String()}
		info.LastErr = attempts.Plain(info.LastErr)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	var err error
	switch infos[0].State {
	case asynq.TaskStatePending:
		if err = q.placed(ctx, jobs); err == nil {
			err = q.pendingSince(ctx, jobs)
		}
	case asynq.TaskStateRetry:
		err = q.placed(ctx, jobs)
	case asynq.TaskStateActive:
		err = q.startedAt(jobs)
	case asynq.TaskStateArchived:
		err = q.archivedAt(ctx, jobs)
	}
	for i, job := range jobs {
		switch {
		case job.Place != nil:
			jobs[i].Since = job.Place.Since
		case job.State == "retry":
			jobs[i].Since = job.LastFailedAt
		case job.State == "completed":
			jobs[i].Since = job.CompletedAt
		}
	}
	return jobs, err
}

// placed finds those that wait or are called.
func (q *Queues) placed(ctx context.Context, jobs []Job) error {
	ids := make([]throttle.JobID, len(jobs))
	for i, job := range jobs {
		ids[i] = job.JobID()
	}
	places, err := q.Limiter.Places(ctx, ids...)
	for i, id := range ids {
		if place, waits := places[id]; waits {
			jobs[i].State, jobs[i].Place = Waiting, &place
			if place.Called {
				jobs[i].State = Called
			}
		}
	}
	return err
}

// Attempts are how the last attempts of a job ended of which one has failed, the last first,
// and how often its worker died beside them, which was forgiven.
func (q *Queues) Attempts(ctx context.Context, id throttle.JobID) (list []attempts.Attempt, crashes int, err error) {
	fields, err := q.rdb.HMGet(ctx, "asynq:{"+id.Queue+"}:t:"+id.ID, attempts.Field, "crashes").Result()
	if err != nil {
		return nil, 0, err
	}
	if text, ok := fields[0].(string); ok {
		list = attempts.Parse(text)
	}
	if text, ok := fields[1].(string); ok {
		crashes, _ = strconv.Atoi(text)
	}
	return list, crashes, nil
}

// Expect has the places of jobs say when these run as the forecast of all that waits does.
func (q *Queues) Expect(ctx context.Context, jobs []Job) error {
	var opts lanes.ForecastOptions
	waits := false
	for _, job := range jobs {
		if job.Place != nil {
			waits, opts.Lane = true, job.Place.Lane.Name
		}
	}
	if !waits {
		return nil
	}
	forecast, err := q.Forecast(ctx, opts)
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if job.Place != nil {
			*job.Place = forecast.Place(*job.Place)
		}
	}
	return nil
}

// pendingSince is what asynq keeps and does not tell.
func (q *Queues) pendingSince(ctx context.Context, jobs []Job) error {
	return q.each(ctx, jobs, func(pipe redis.Pipeliner, job Job) func(*Job) {
		since := pipe.HGet(ctx, "asynq:{"+job.Queue+"}:t:"+job.ID, "pending_since")
		return func(job *Job) {
			if ns, err := strconv.ParseInt(since.Val(), 10, 64); err == nil { // else another asynq's way to write it
				job.Since = time.Unix(0, ns)
			}
		}
	})
}

// archivedAt is in whole seconds: asynq keeps it and does not tell.
func (q *Queues) archivedAt(ctx context.Context, jobs []Job) error {
	return q.each(ctx, jobs, func(pipe redis.Pipeliner, job Job) func(*Job) {
		at := pipe.ZScore(ctx, "asynq:{"+job.Queue+"}:archived", job.ID)
		return func(job *Job) {
			if at.Err() == nil {
				job.Since = time.Unix(int64(at.Val()), 0)
			}
		}
	})
}

// each asks something about each job in one round trip. What is not there any more is
// no error.
func (q *Queues) each(ctx context.Context, jobs []Job, ask func(redis.Pipeliner, Job) func(*Job)) error {
	pipe := q.rdb.Pipeline()
	answers := make([]func(*Job), len(jobs))
	for i, job := range jobs {
		answers[i] = ask(pipe, job)
	}
	commands, _ := pipe.Exec(ctx)
	for _, command := range commands {
		if err := command.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	for i, answer := range answers {
		answer(&jobs[i])
	}
	return nil
}

// startedAt is what the servers say that run them.
func (q *Queues) startedAt(jobs []Job) error {
	servers, err := q.Inspector.Servers()
	if err != nil {
		return err
	}
	for _, server := range servers {
		for _, w := range server.ActiveWorkers {
			i := slices.IndexFunc(jobs, func(job Job) bool { return job.ID == w.TaskID && job.Queue == w.Queue })
			if i >= 0 {
				jobs[i].Since = w.Started
			}
		}
	}
	return nil
}
