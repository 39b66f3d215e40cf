package throttle

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// JobID identifies a job: the same ID in two queues is two jobs.
type JobID struct{ Queue, ID string }

// Change is one entry of the changelog: a change of a limit, a schedule, a queue or jobs.
type Change struct {
	// ID is the ID of the entry in a Redis stream. Later entries have higher IDs.
	ID string
	// At is the time of the change by Redis's clock.
	At time.Time
	// What is the kind of change, such as defined (by a config file), set, unset, deleted, paused,
	// resumed, reset, blocked, unblocked, run, retried, cancelled or archived.
	What string
	// Limit and Key are the limit and the key that were changed. Key is empty for a change of the
	// limit itself. Both are empty for a change of a schedule, a queue or jobs.
	Limit, Key string
	// By is the actor that WithActor has set, or empty. If an upstream's response caused a block,
	// By is "upstream".
	By string
	// Until is the end of a block by Redis's clock. It is zero for other changes.
	Until time.Time
	// From and To are the limit's definitions before and after the change, as Limit.String writes
	// them. From is empty for a new limit, and To is empty for a deleted limit. For a change of a key,
	// they are its Overrides, or empty.
	From, To string
	// Schedule is the schedule that was changed, or empty.
	Schedule string
	// Jobs is the number of jobs that were changed, or 0.
	Jobs int
	// Job is the changed job if only one job was changed. For several jobs of one queue, or for a
	// change of a queue, Job has only a Queue. For jobs of several queues Job is zero.
	Job JobID
}

// WithActor returns a context with an actor, a user or a program. A Change that is made with this
// context has the actor in By.
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

// Note writes a changelog entry about a schedule, a queue or jobs, with the context's actor. Methods
// that change a limit write their own entries.
func (s *shared) Note(ctx context.Context, c Change) error {
	args := []any{c.What, script.Actor(ctx)}
	if c.Schedule != "" {
		args = append(args, "schedule", c.Schedule)
	}
	switch {
	case c.Jobs == 0 && c.Job.Queue != "":
		args = append(args, "queue", c.Job.Queue)
	case c.Jobs > 0:
		const maxID = 200 // bytes
		args = append(args, "jobs", c.Jobs, "queue", c.Job.Queue, "job", c.Job.ID[:min(len(c.Job.ID), maxID)])
	}
	return unavailable(s.run(ctx, noteScript, args...).Err())
}

// newChange reads an entry that a script has written with lua/limits/include/change.lua. The
// entry's ID begins with its time in milliseconds.
func newChange(entry redis.XMessage) Change {
	text := func(field string) string {
		value, _ := entry.Values[field].(string)
		return value
	}
	at, _, _ := strings.Cut(entry.ID, "-")
	keyBefore := Override{Rate{int(number(text("from_n"))), microseconds(number(text("from_per_us")))}, int(number(text("from_capacity")))}
	c := Change{
		ID: entry.ID, At: time.UnixMilli(number(at)), What: text("what"), Limit: text("limit"), Key: text("key"),
		By: text("by"), From: cmp.Or(text("from"), keyBefore.String()), To: text("to"),
		Schedule: text("schedule"), Job: JobID{text("queue"), text("job")}, Jobs: int(number(text("jobs"))),
	}
	if us := number(text("until")); us > 0 {
		c.Until = time.UnixMicro(us)
	}
	return c
}
