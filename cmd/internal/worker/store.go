package worker

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/display"
)

// open connects to the Redis of the options, or of the config. end closes the connections, and stops
// the embedded Redis if this worker runs it.
func (w *Worker) open(ctx context.Context, r config.Redis) (end func(), err error) {
	if w.redis = w.options.Redis; w.redis != nil {
		return func() {}, nil
	}
	if !r.IsZero() { // await waits until this Redis answers
		w.redis, err = r.Client()
		return func() { _ = w.redis.Close() }, err
	}
	note := func(line string) { fmt.Fprintln(w.options.Notes, "worker: "+line) }
	rdb, stop, err := r.Create(ctx, note)
	if err != nil {
		return nil, err
	}
	logJobs := func(text string) {
		if n, err := countJobs(rdb); err == nil && n > 0 {
			note(fmt.Sprintf(text, r.Folder(), display.Count(n, "job")))
		}
	}
	w.redis = rdb
	logJobs("waiting in %s from before: %s")
	return func() {
		logJobs("kept in %s for the next \"worker run\": %s")
		if err := stop(); err != nil {
			note(err.Error())
		}
	}, nil
}

// countJobs returns the number of jobs that are not finished.
func countJobs(rdb redis.UniversalClient) (int, error) {
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	queues, err := inspector.Queues()
	n := 0
	for _, queue := range queues {
		info, err := inspector.GetQueueInfo(queue)
		if err != nil {
			return n, err
		}
		n += info.Pending + info.Active + info.Scheduled + info.Retry + info.Aggregating
	}
	return n, err
}
