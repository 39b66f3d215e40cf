package asynqdb

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// DB reads and changes asynq's data in one Redis.
type DB struct{ Redis redis.UniversalClient }

// New returns the DB of a Redis client.
func New(rdb redis.UniversalClient) DB { return DB{rdb} }

// Queues returns the sorted names of asynq's queues. It leaves out the short-lived queues of Check.
func (db DB) Queues(ctx context.Context) ([]string, error) {
	names, err := db.Redis.SMembers(ctx, queues).Result()
	slices.Sort(names)
	return slices.DeleteFunc(names, func(queue string) bool { return strings.HasPrefix(queue, CheckQueue) }), err
}

// CountUnfinished returns the number of jobs of queues that are pending, active, scheduled, to be
// retried, or in a group.
func (db DB) CountUnfinished(ctx context.Context, queues []string) (jobs int64, err error) {
	var counts []*redis.IntCmd
	groups, sets := make([]*redis.StringSliceCmd, len(queues)), make([]*redis.StringSliceCmd, len(queues))
	_, err = db.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			counts = append(counts, p.LLen(ctx, Key(queue, Pending)), p.LLen(ctx, Key(queue, Active)),
				p.ZCard(ctx, Key(queue, Scheduled)), p.ZCard(ctx, Key(queue, Retry)))
			groups[i], sets[i] = p.SMembers(ctx, Key(queue, Groups)), p.ZRange(ctx, Key(queue, AggregationSets), 0, -1)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	_, err = db.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			for _, group := range groups[i].Val() {
				counts = append(counts, p.ZCard(ctx, Key(queue, GroupPrefix)+group))
			}
			for _, key := range sets[i].Val() {
				counts = append(counts, p.ZCard(ctx, key))
			}
		}
		return nil
	})
	for _, n := range counts {
		jobs += n.Val()
	}
	return jobs, err
}

// The fields of a job's hash, for Fields.
const (
	FieldState   = "state" // the job's state, in asynq's words
	FieldMessage = "msg"   // the encoded message: see ParseMessage
	FieldScope   = "scope" // the scope that denied the job last
)

var fieldsScript = script.New("asynq/fields")

// Fields returns one field of each job's hash, in the order of the IDs. A missing field is "". It reads
// up to MaxReply bytes in a call of Redis, or one field.
func (db DB) Fields(ctx context.Context, queue, field string, ids ...string) (values []string, err error) {
	for len(values) < len(ids) {
		more, err := db.FirstFields(ctx, queue, field, MaxReply, ids[len(values):]...)
		if err != nil {
			return nil, err
		}
		values = append(values, more...)
	}
	return values, nil
}

// FirstFields returns one field of the first jobs, as Fields does: as many as have up to maxBytes
// together, one at least.
func (db DB) FirstFields(ctx context.Context, queue, field string, maxBytes int, ids ...string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	args := []any{field, maxBytes}
	for _, id := range ids {
		args = append(args, id)
	}
	return fieldsScript.Run(ctx, db.Redis, []string{Hash(queue, "")}, args...).StringSlice()
}

var largestScript = script.New("asynq/largest")

// PieceSize returns how many jobs of a page a reader can ask for at once. The page has the jobs from
// start to start+size-1 of one of asynq's lists or sets, in asynq's order. The result divides size,
// and so many of the largest job of the page have at most MaxReply bytes. It is 1 at least.
func (db DB) PieceSize(ctx context.Context, queue, set string, start, size int) (int, error) {
	largest, err := largestScript.Run(ctx, db.Redis, []string{Key(queue, set), Hash(queue, "")}, start, start+size-1).Int()
	if err != nil {
		return 0, err
	}
	n := min(size, max(1, MaxReply/max(1, largest)))
	for size%n != 0 {
		n--
	}
	return n, nil
}

// Since returns the time at which each job became pending or archived, or the zero Time if that
// time is unknown. state is the present state of the jobs.
func (db DB) Since(ctx context.Context, queue string, state asynq.TaskState, ids ...string) ([]time.Time, error) {
	times := make([]time.Time, len(ids))
	if state == asynq.TaskStateArchived {
		seconds, err := db.Redis.ZMScore(ctx, Key(queue, Archived), ids...).Result()
		for i, s := range seconds {
			if s > 0 {
				times[i] = time.Unix(int64(s), 0)
			}
		}
		return times, err
	}
	texts, err := db.Fields(ctx, queue, "pending_since", ids...)
	for i, text := range texts {
		if ns, err := strconv.ParseInt(text, 10, 64); err == nil {
			times[i] = time.Unix(0, ns)
		}
	}
	return times, err
}

var identifyScript = script.New("asynq/identify")

// IdempotencyKey returns the idempotency key of a job, and first stores key if the job has none.
// All attempts of a job have the same key, but a later job with the same ID has another key.
func (db DB) IdempotencyKey(ctx context.Context, queue, id, key string) (string, error) {
	return identifyScript.Run(ctx, db.Redis, []string{Hash(queue, id)}, key).Text()
}

// Leased is the lease of an active job.
type Leased struct {
	ID   string
	Ends int64 // the Unix second at which the lease ends
}

// Leases returns the leases of a queue that end at until or before, the earliest first.
func (db DB) Leases(ctx context.Context, queue string, until time.Time) ([]Leased, error) {
	by := &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(until.Unix(), 10)}
	found, err := db.Redis.ZRangeByScoreWithScores(ctx, Key(queue, Lease), by).Result()
	leases := make([]Leased, len(found))
	for i, z := range found {
		leases[i] = Leased{z.Member.(string), int64(z.Score)}
	}
	return leases, err
}

// Page is the number of jobs of a retry set that one call of Denied reads.
const Page = 100

// Denied returns the IDs of the denied jobs in one page of a queue's retry set. The page starts at
// offset. The pages have only jobs whose retry time is not before from, and is before `before`. A
// zero time is no bound. next is the offset of the next page, or -1 after the last page. If the
// caller removes jobs of a page from the set, it must reduce next by their number. Denied takes two
// round trips.
func (db DB) Denied(ctx context.Context, queue string, from, before time.Time, offset int) (ids []string, next int, err error) {
	by := redis.ZRangeBy{Min: "-inf", Max: "+inf", Offset: int64(offset), Count: Page}
	if !from.IsZero() {
		by.Min = strconv.FormatInt(unixCeil(from), 10)
	}
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
	denied, err := db.Fields(ctx, queue, "denied", all...)
	if err != nil {
		return nil, 0, err
	}
	for i, until := range denied {
		if isDenied(until, int64(page[i].Score)) {
			ids = append(ids, all[i])
		}
	}
	if len(page) == Page {
		return ids, offset + Page, nil
	}
	return ids, -1, nil
}

// IsDenied reports whether a job of the retry set, whose retry time is at, was denied and waits for
// permits. Any other job of the set has failed, or was put back by its handler.
func (db DB) IsDenied(ctx context.Context, queue, id string, at time.Time) (bool, error) {
	denied, err := db.Fields(ctx, queue, "denied", id)
	return err == nil && isDenied(denied[0], at.Unix()), err
}

// isDenied is the same test as in lua/asynq/include/denied.lua.
func isDenied(field string, at int64) bool { return field == strconv.FormatInt(at, 10) }
