package throttle

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// JobID is who a job is: the same ID in two queues is two jobs.
type JobID struct{ Queue, ID string }

// Change is one entry of the changelog: who changed what of a limit, a schedule, a
// queue or a job, and when.
type Change struct {
	// ID is the entry's own, in the order of time.
	ID string
	// At is when it happened, by Redis's clock.
	At time.Time
	// What is defined (as a config file says), set, deleted, paused, resumed,
	// reset, blocked or unblocked; of a key, set or unset; of a schedule, paused,
	// resumed or run; of a queue, paused, resumed or deleted; of jobs, run, retried,
	// cancelled, archived or deleted.
	What string
	// Limit and Key are what was changed; Key is empty where that was the limit.
	Limit, Key string
	// By is who did it, as said with As; empty where nobody said. Of a block it is
	// "upstream" where an answer of the other side asked for it.
	By string
	// Until is when a block ends, by Redis's clock, and zero for all else.
	Until time.Time
	// From and To are the limit's definitions before and after, as Limit.String
	// writes them: From is empty of a new limit, and To of a deleted one. Of a key
	// that was set, To is its Override.
	From, To string
	// Schedule is what was changed where that was no limit.
	Schedule string
	// Jobs is how many jobs were, and Job the one where that was one. Of more it has
	// only their queue, and of several queues nothing. With no jobs it is the queue itself
	// that was paused, resumed or deleted.
	Jobs int
	Job  JobID
}

// Note writes an entry of the changelog about a schedule, a queue or jobs, put down to who
// As says; that about a limit is written by what changes it. The ID of a job is cut
// at 200 bytes.
func (r *Redis) Note(ctx context.Context, c Change) error {
	args := []any{c.What, by(ctx)}
	if c.Schedule != "" {
		args = append(args, "schedule", c.Schedule)
	}
	switch {
	case c.Jobs == 0 && c.Job.Queue != "":
		args = append(args, "queue", c.Job.Queue)
	case c.Jobs > 0:
		args = append(args, "jobs", c.Jobs, "queue", c.Job.Queue, "job", c.Job.ID[:min(len(c.Job.ID), maxNotedID)])
	}
	return unavailable(r.run(ctx, noteScript, args...).Err())
}

const maxNotedID = 200 // bytes

type actor struct{}

// As returns a context whose changes of limits are put down to who in the
// changelog: a user, or the program that made them.
func As(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, actor{}, who)
}

// by is who As said, or nobody.
func by(ctx context.Context) string {
	who, _ := ctx.Value(actor{}).(string)
	return who
}

// Changes returns the last n entries of the changelog, the newest first. It
// remembers some 500, of all limits of the scope, those that are gone too.
func (r *Redis) Changes(ctx context.Context, n int) ([]Change, error) {
	entries, err := r.rdb.XRevRangeN(ctx, r.prefix+"changelog", "+", "-", int64(n)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, unavailable(err)
	}
	changes := make([]Change, len(entries))
	for i, entry := range entries {
		changes[i] = newChange(entry)
	}
	return changes, nil
}

// newChange reads an entry as lua/limits/include/change.lua writes it. Its time is that of
// the entry's ID, to the millisecond.
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
