package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
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
		info.LastErr = asynqdb.PlainError(info.LastErr)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	var err error
	switch infos[0].State {
	case asynq.TaskStatePending:
		if err = q.placed(ctx, jobs); err == nil {
			err = since(ctx, jobs, q.db.PendingSince)
		}
	case asynq.TaskStateRetry:
		err = q.placed(ctx, jobs)
	case asynq.TaskStateActive:
		err = q.startedAt(jobs)
	case asynq.TaskStateArchived:
		err = since(ctx, jobs, q.db.ArchivedAt)
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
func (q *Queues) Attempts(ctx context.Context, id throttle.JobID) (list []asynqdb.Attempt, crashes int, err error) {
	return q.db.Attempts(ctx, id.Queue, id.ID)
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

// since asks for what asynq keeps and does not tell.
func since(ctx context.Context, jobs []Job, ask func(ctx context.Context, queue string, ids ...string) ([]time.Time, error)) error {
	ids := make([]string, len(jobs))
	for i, job := range jobs {
		ids[i] = job.ID
	}
	times, err := ask(ctx, jobs[0].Queue, ids...)
	for i, at := range times {
		jobs[i].Since = at
	}
	return err
}

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
