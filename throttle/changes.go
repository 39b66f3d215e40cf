package throttle

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Change is one entry of the changelog: who changed what of a limit, and when. It is
// written in the step that makes the change. What a config file says of single keys
// is not noted, nor what adapting learns.
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
	// By is who did it, as said with As; empty where nobody said. Of a block it is
	// "upstream" where an answer of the other side asked for it.
	By string
	// Until is when a block ends, by Redis's clock, and zero for all else.
	Until time.Time
	// From and To are the limit's definitions before and after, as Limit.String
	// writes them: From is empty of a new limit, and To of a deleted one. Of a key
	// that was set, To is its Override.
	From, To string
}

// actor is the key under which a context has who it is that changes limits.
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

// newChange reads an entry as lua/include/note.lua writes it. Its time is that of
// the entry's ID, to the millisecond.
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
