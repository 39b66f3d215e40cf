package scheduler

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

// WithArchiveRetention sets how long the server keeps the archived jobs of its queues. The default
// is asynq's, 90 days. In contrast to asynq's server, this one keeps any number of archived jobs. If
// several servers of a queue have different settings, the shortest one applies.
func WithArchiveRetention(d time.Duration) Option {
	return func(o *options) { o.archiveRetention = d }
}

// archiveInterval is the pause after a look for archived jobs that are too old.
const archiveInterval = time.Minute

// expireArchived deletes archived jobs that are older than the archive retention, a page of each
// queue in a call. It does nothing within archiveInterval after a call that found less than a page.
func (r *recovery) expireArchived(ctx context.Context) {
	now := time.Now()
	if now.Before(r.archivedCheckAt) {
		return
	}
	more := false
	for _, queue := range r.queues {
		deleted, err := r.db.ExpireArchived(ctx, queue, now.Add(-r.archiveRetention))
		more = more || err == nil && deleted == asynqdb.ArchivePage
	}
	if !more {
		r.archivedCheckAt = now.Add(archiveInterval)
	}
}
