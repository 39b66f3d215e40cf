package scheduler

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// restoreFor is how long the restorer works at a time.
	restoreFor = 20 * time.Millisecond
	// The restorer rests for restTimes as long as it has worked, and at most maxRestoreRest.
	restTimes      = 9
	maxRestoreRest = time.Second
)

// restorer repairs jobs after Redis has lost parts of asynq's data: it looks at the hashes of all
// jobs of the server's queues, twice a minute.
type restorer struct {
	*Server
	queues []string
	walk   *asynqdb.Walk
	warned map[string]bool // queues about which warnOutside has warned
}

// restoreJobs runs a restorer until ctx ends.
func (s *Server) restoreJobs(ctx context.Context) {
	r := restorer{Server: s, queues: slices.Sorted(maps.Keys(s.byQueue)), warned: map[string]bool{}}
	for ctx.Err() == nil {
		began := time.Now()
		if err := r.work(ctx); err != nil || r.walk.Done() {
			sleep(ctx, heartbeat)
			continue
		}
		sleep(ctx, min(restTimes*time.Since(began), maxRestoreRest))
	}
}

// work looks at pages of jobs for a short time. If a job is missing in asynq's lists and sets, work
// adds it again.
func (r *restorer) work(ctx context.Context) (err error) {
	began := time.Now()
	if r.walk.Done() {
		if r.walk, err = r.db.NewWalk(ctx, r.queues); err != nil || r.walk.Done() {
			return err
		}
		r.warnOutside(ctx)
	}
	for !r.walk.Done() && time.Since(began) < restoreFor {
		jobs, err := r.walk.Next(ctx)
		if err != nil {
			return err
		}
		for queue, ids := range jobs {
			restored, lost, _ := r.db.Restore(ctx, queue, ids...)
			r.logLost(queue, restored, lost)
		}
	}
	return nil
}

// logLost logs how many entries of a queue were restored, and which jobs are lost.
func (s *Server) logLost(queue string, restored int, lost []string) {
	if restored > 0 {
		s.log.Warn("Redis has lost entries of a queue's jobs, and has them again", "queue", queue, "entries", restored)
	}
	for _, id := range lost {
		s.log.Warn("Redis has lost an active job: it cannot run", "queue", queue, "id", id)
	}
}

// warnOutside warns once for each queue with shards that has jobs outside of its shards. An asynq
// client that does not know the shards has enqueued such jobs.
func (r *restorer) warnOutside(ctx context.Context) {
	for queue := range r.shards {
		jobs, err := r.db.CountUnfinished(ctx, []string{queue})
		if err == nil && jobs > 0 && !r.warned[queue] {
			r.warned[queue] = true
			r.log.Warn("a queue with shards has jobs outside of its shards: no server runs them", "queue", queue, "jobs", jobs)
		}
	}
}
