package scheduler

import (
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

// judgeLock sees that a job which runs keeps its Unique lock no longer than asynq's
// client said, from when it was called.
func (w *sim) judgeLock(id string) {
	w.mu.Lock()
	job := w.jobs[id]
	w.mu.Unlock()
	if job.unique == 0 {
		return
	}
	key := w.hand.rdb.HGet(w.t.Context(), asynqdb.Hash(job.lane.queue, id), "unique_key").Val()
	if left := w.hand.rdb.PTTL(w.t.Context(), key).Val(); left > job.unique+asynqdb.LockMargin+5*time.Second {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.breaksFor(id, "it runs, and its lock of %s lasts for another %s", job.unique, left)
	}
}
