package throttle

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// JobID identifies a job: the same ID in two queues is two jobs.
type JobID struct{ Queue, ID string }

// Change is one entry of the changelog: who changed what of a limit, a schedule, a queue or a job,
// and when.
type Change struct {
	// ID is the entry's own. IDs are in the order of time.
	ID string
	// At is when it happened, by Redis's clock.
	At time.Time
	// What is defined (by a config file), set, deleted, paused, resumed, reset, blocked or
	// unblocked; for a key, set or unset; for a schedule, paused, resumed or run; for a queue,
	// paused, resumed or deleted; for jobs, run, retried, cancelled, archived or deleted.
	What string
	// Limit and Key are what was changed; Key is empty if that was the limit.
	Limit, Key string
	// By is who did it, as given to WithActor; empty if nobody was given. For a block it is
	// "upstream" if an upstream's answer asked for it.
	By string
	// Until is when a block ends, by Redis's clock, and zero for everything else.
	Until time.Time
	// From and To are the limit's definitions before and after, as Limit.String writes them: From
	// is empty for a new limit, and To for a deleted one. For a key that was set, To is its
	// Override.
	From, To string
	// Schedule is the schedule that was changed.
	Schedule string
	// Jobs is how many jobs were changed, and Job the only one. For several jobs, Job has only
	// their queue, and for several queues nothing. With no jobs Job.Queue is the queue itself.
	Jobs int
	Job  JobID
}

// WithActor returns a context whose changes are put down to an actor in the changelog: a user, or
// the program that made them.
func WithActor(ctx context.Context, actor string) context.Context {
	return script.WithActor(ctx, actor)
}

func (s *shared) changes(ctx context.Context, n int) ([]Change, error) {
	entries, err := s.rdb.XRevRangeN(ctx, s.prefix+"changelog", "+", "-", int64(n)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, unavailable(err)
	}
	changes := make([]Change, len(entries))
	for i, entry := range entries {
		changes[i] = newChange(entry)
	}
	return changes, nil
}

// newChange reads an entry as lua/limits/include/change.lua writes it. Its time is that of the
// entry's ID, to the millisecond.
func newChange(entry redis.XMessage) Change {
	text := func(field string) string {
		value, _ := entry.Values[field].(string)
		return value
	}
	at, _, _ := strings.Cut(entry.ID, "-")
	c := Change{
		ID: entry.ID, At: time.UnixMilli(number(at)), What: text("what"), Limit: text("limit"), Key: text("key"),
		By: text("by"), From: text("from"), To: text("to"),
		Schedule: text("schedule"), Job: JobID{text("queue"), text("job")}, Jobs: int(number(text("jobs"))),
	}
	if us := number(text("until")); us > 0 {
		c.Until = time.UnixMicro(us)
	}
	return c
}
