package throttle

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Change is one entry of the changelog: who changed what of a limit, and when.
type Change struct {
	// ID is the entry's own, in the order of time.
	ID string
	// At is when it happened, by Redis's clock.
	At time.Time
	// What is defined (as a config file says), set, deleted, paused, resumed,
	// reset, blocked or unblocked; of a key, set or unset.
	What string
	// Limit and Key are what was changed; Key is empty where that was the limit.
	Limit, Key string
	// By is who did it, as said with As; empty where nobody said.
	By string
	// Until is when a block ends.
	Until time.Time
	// From and To are the limit's definitions before and after.
	From, To string
}

type actor struct{}

// As returns a context whose changes of limits are put down to who in the
// changelog: a user, or the program that made them.
func As(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, actor{}, who)
}

func by(ctx context.Context) string {
	who, _ := ctx.Value(actor{}).(string)
	return who
}

// Changes returns the last n entries of the changelog, the newest first. It
// remembers some 500.
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

func newChange(entry redis.XMessage) Change {
	text := func(field string) string {
		value, _ := entry.Values[field].(string)
		return value
	}
	at, _, _ := strings.Cut(entry.ID, "-")
	ms, _ := strconv.ParseInt(at, 10, 64)
	c := Change{
		ID: entry.ID, At: time.UnixMilli(ms), What: text("what"), Limit: text("limit"), Key: text("key"),
		By: text("by"), From: text("from"), To: text("to"),
	}
	if us, err := strconv.ParseInt(text("until"), 10, 64); err == nil {
		c.Until = time.UnixMicro(us)
	}
	return c
}
