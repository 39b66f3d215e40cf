package asynqdb

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// DB is an asynq Redis.
type DB struct{ Redis redis.UniversalClient }

// New is the asynq Redis that a client is connected with.
func New(rdb redis.UniversalClient) DB { return DB{rdb} }

// Queues lists all queues that asynq knows, by name, but those of Check, which are there for a
// moment: their jobs wait for no permits, so nobody else is to send them back to ask.
func (db DB) Queues(ctx context.Context) ([]string, error) {
	names, err := db.Redis.SMembers(ctx, queues).Result()
	slices.Sort(names)
	return slices.DeleteFunc(names, func(queue string) bool { return strings.HasPrefix(queue, CheckQueue) }), err
}

// States says in which state asynq keeps each job of a queue: "" if it is gone.
func (db DB) States(ctx context.Context, queue string, ids ...string) ([]string, error) {
	return db.field(ctx, queue, "state", ids)
}

// Messages are the jobs of a queue as asynq encodes them: "" if one is gone.
func (db DB) Messages(ctx context.Context, queue string, ids ...string) ([]string, error) {
	return db.field(ctx, queue, "msg", ids)
}

// Scopes says whose permits each job of a queue was denied last.
func (db DB) Scopes(ctx context.Context, queue string, ids ...string) ([]string, error) {
	return db.field(ctx, queue, "scope", ids)
}

// PendingSince says since when jobs of a queue are pending: zero where nobody knows.
func (db DB) PendingSince(ctx context.Context, queue string, ids ...string) ([]time.Time, error) {
	texts, err := db.field(ctx, queue, "pending_since", ids)
	times := make([]time.Time, len(texts))
	for i, text := range texts {
		if ns, err := strconv.ParseInt(text, 10, 64); err == nil {
			times[i] = time.Unix(0, ns)
		}
	}
	return times, err
}

// ArchivedAt says when jobs of a queue were archived, in whole seconds: zero where they are not.
func (db DB) ArchivedAt(ctx context.Context, queue string, ids ...string) ([]time.Time, error) {
	seconds, err := db.Redis.ZMScore(ctx, Key(queue, Archived), ids...).Result()
	times := make([]time.Time, len(seconds))
	for i, s := range seconds {
		if s > 0 {
			times[i] = time.Unix(int64(s), 0)
		}
	}
	return times, err
}

// PendingWithLock lists the pending jobs of a queue that have a Unique lock.
func (db DB) PendingWithLock(ctx context.Context, queue string) (locked []string, err error) {
	const page = 1000
	for at := int64(0); ; at += page {
		ids, err := db.Redis.LRange(ctx, Key(queue, Pending), at, at+page-1).Result()
		if err != nil || len(ids) == 0 {
			return locked, err
		}
		locks, err := db.field(ctx, queue, "unique_key", ids)
		if err != nil {
			return nil, err
		}
		for i, lock := range locks {
			if lock != "" {
				locked = append(locked, ids[i])
			}
		}
	}
}

// field reads a field of each job's hash; "" where there is none.
func (db DB) field(ctx context.Context, queue, name string, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	args := []any{name}
	for _, id := range ids {
		args = append(args, id)
	}
	return fieldsScript.Run(ctx, db.Redis, []string{Hash(queue, "")}, args...).StringSlice()
}

// Name is a name that all attempts of a job share, and no later job of its ID: the one that
// is given, unless it has one.
func (db DB) Name(ctx context.Context, queue, id, name string) (string, error) {
	return identifyScript.Run(ctx, db.Redis, []string{Hash(queue, id)}, name).Text()
}

// Leased is an active job, and the unix second at which its lease ends.
type Leased struct {
	ID   string
	Ends int64
}

// Leases are a queue's jobs whose lease ends until a moment, the next in front.
func (db DB) Leases(ctx context.Context, queue string, until time.Time) ([]Leased, error) {
	by := &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(until.Unix(), 10)}
	found, err := db.Redis.ZRangeByScoreWithScores(ctx, Key(queue, Lease), by).Result()
	leases := make([]Leased, len(found))
	for i, z := range found {
		leases[i] = Leased{z.Member.(string), int64(z.Score)}
	}
	return leases, err
}

// Page is how many jobs of a retry set are looked at together.
const Page = 100

// Denied lists denied jobs of a queue that asynq itself would bring back before a
// moment; the zero Time means ever. It looks at a page of the retry set, from
// offset on, and returns the offset of the next page if these stay where they
// are, or -1 if that was the last. It takes two round trips, however few of the page
// are denied: failed jobs that wait for their retry stand among them.
func (db DB) Denied(ctx context.Context, queue string, before time.Time, offset int) (ids []string, next int, err error) {
	by := redis.ZRangeBy{Min: "-inf", Max: "+inf", Offset: int64(offset), Count: Page}
	if !before.IsZero() {
		by.Max = "(" + strconv.FormatInt(unixCeil(before), 10)
	}
	page, err := db.Redis.ZRangeByScoreWithScores(ctx, Key(queue, Retry), &by).Result()
	if err != nil {
		return nil, 0, err
	}
	all := make([]string, len(page))
	for i, z := range page {
		all[i] = z.Member.(string)
	}
	denied, err := db.field(ctx, queue, "denied", all)
	if err != nil {
		return nil, 0, err
	}
	for i, until := range denied {
		if until == strconv.FormatInt(int64(page[i].Score), 10) { // as lua/asynq/include/denied.lua has it
			ids = append(ids, all[i])
		}
	}
	if len(page) == Page {
		return ids, offset + Page, nil
	}
	return ids, -1, nil
}
