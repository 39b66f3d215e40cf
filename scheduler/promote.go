package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/lua"
)

// promoter moves denied jobs in asynq's queues. With the scripts that it runs,
// and queueRedis, it is the only code that knows how asynq keeps them: a hash for
// each job, a list of the pending, and a sorted set of those to be retried, by the
// second in which they come. asynq's Inspector could run a job, too, but would put
// it last, and runs archived and completed ones again.
//
// A job's hash has two fields more. One is denied: until when it was put back, or that
// it was called. It is what tells a job that waits for permits from one that has failed
// and waits for its retry in the same set. The other is scope: whose permits those are,
// since several limiters can share an asynq Redis.
type promoter struct{ rdb redis.UniversalClient }

// fates are the words of lua/asynq/promote.lua.
var fates = map[string]turns.Fate{
	"moved":   turns.Moved,
	"active":  turns.Active,  // its handler has not returned yet: try again soon
	"pending": turns.Pending, // it comes anyway
	"done":    turns.Done,    // it waits for no permit: archived, completed, enqueued anew …
	"gone":    turns.Gone,    // deleted
}

// promote moves called jobs to the head of their queues, behind those promoted
// before; the first to run comes first. It returns what became of each: one
// round trip per queue. It is exact where a poll of asynq's would be seconds late,
// and harmless for jobs that do not wait: their fates say what they do instead.
// After an error the jobs of some queues may have been moved; to ask again is safe.
func (p promoter) promote(ctx context.Context, jobs []job) ([]turns.Fate, error) {
	byQueue := map[string][]int{}
	for i, j := range jobs {
		byQueue[j.queue] = append(byQueue[j.queue], i)
	}
	found := make([]turns.Fate, len(jobs))
	for queue, indexes := range byQueue {
		prefix := queuePrefix(queue)
		args := []any{prefix + "t:", time.Now().UnixNano()}
		for _, i := range indexes {
			args = append(args, jobs[i].id)
		}
		reply, err := lua.Promote.Run(ctx, p.rdb, []string{prefix + "pending", prefix + "retry", bellKey(queue)}, args...).StringSlice()
		if err != nil {
			return nil, err
		}
		for k, i := range indexes {
			found[i] = fates[reply[k]]
		}
	}
	return found, nil
}

// ping returns an error if the queues cannot be reached.
func (p promoter) ping(ctx context.Context) error { return p.rdb.Ping(ctx).Err() }

// allQueues lists all queues that asynq knows.
func (p promoter) allQueues(ctx context.Context) ([]string, error) {
	return p.rdb.SMembers(ctx, "asynq:queues").Result()
}

// putBackAt says when asynq itself brings a job back that nobody promotes.
type putBackAt struct {
	id string
	at time.Time
}

// postpone sets that time anew for jobs of a queue that still wait denied, and has
// their Unique locks outlast it. Others stay as they are: they may have been called
// since the caller looked.
func (p promoter) postpone(ctx context.Context, queue string, jobs []putBackAt) error {
	if len(jobs) == 0 {
		return nil
	}
	prefix := queuePrefix(queue)
	args := []any{prefix + "t:", time.Now().Unix(), int64(uniqueMargin / time.Second)}
	for _, j := range jobs {
		args = append(args, j.id, unixCeil(j.at))
	}
	return lua.Postpone.Run(ctx, p.rdb, []string{prefix + "retry"}, args...).Err()
}

// duePage is how many jobs of a retry set are looked at together.
const duePage = 100

// due lists denied jobs of a queue that asynq itself would bring back before a
// moment; the zero Time means ever. It looks at a page of the retry set, from
// offset on, and returns the offset of the next page if these stay where they
// are, or -1 if that was the last. It takes two round trips, however few of the page
// are denied: failed jobs that wait for their retry stand among them.
func (p promoter) due(ctx context.Context, queue string, before time.Time, offset int) (ids []string, next int, err error) {
	limit := "+inf"
	if !before.IsZero() {
		limit = "(" + strconv.FormatInt(unixCeil(before), 10)
	}
	page, err := p.rdb.ZRangeByScoreWithScores(ctx, queuePrefix(queue)+"retry",
		&redis.ZRangeBy{Min: "-inf", Max: limit, Offset: int64(offset), Count: duePage}).Result()
	if err != nil {
		return nil, 0, err
	}
	all := make([]string, len(page))
	for i, z := range page {
		all[i] = z.Member.(string)
	}
	denied, err := p.field(ctx, queue, "denied", all)
	if err != nil {
		return nil, 0, err
	}
	for i, until := range denied {
		if until == strconv.FormatInt(int64(page[i].Score), 10) { // as lua/asynq/include/denied.lua has it
			ids = append(ids, all[i])
		}
	}
	if len(page) == duePage {
		return ids, offset + duePage, nil
	}
	return ids, -1, nil
}

// states says in which state asynq keeps each job of a queue: "" if it is gone.
func (p promoter) states(ctx context.Context, queue string, ids ...string) ([]string, error) {
	return p.field(ctx, queue, "state", ids)
}

// field reads a field of each job's hash; "" where there is none.
func (p promoter) field(ctx context.Context, queue, name string, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	args := []any{name}
	for _, id := range ids {
		args = append(args, id)
	}
	return lua.Fields.Run(ctx, p.rdb, []string{queuePrefix(queue) + "t:"}, args...).StringSlice()
}

// errLayout means that asynq keeps its jobs elsewhere than promote looks.
var errLayout = errors.New("this asynq keeps its jobs in another way than headgate knows")

// checkQueue begins the names of the queues in which processes check that. Their
// jobs wait for no permits, so nobody else is to send them back to ask.
const checkQueue = "headgate-check-"

// check puts a job of its own in a queue of its own back and promotes it, and
// asks asynq each time where the job is: asynq's layout is private, and another
// version may keep jobs elsewhere. An error that wraps errLayout, or one of asynq's
// that it does not find the job or its queue, means that it does, or that somebody
// took the job away meanwhile; any other says nothing about that.
func (p promoter) check(ctx context.Context) (err error) {
	queue := checkQueue + uuid.NewString()
	client, tasks := asynq.NewClientFromRedisClient(p.rdb), asynq.NewInspectorFromRedisClient(p.rdb)
	info, err := client.EnqueueContext(ctx, asynq.NewTask("check", nil), asynq.Queue(queue))
	defer func() {
		if gone := tasks.DeleteQueue(queue, true); info != nil { // else it may be there, or not
			err = errors.Join(err, gone, p.rdb.Del(ctx, bellKey(queue)).Err())
		}
	}()
	if err != nil {
		return err
	}
	want := func(state asynq.TaskState) error {
		now, err := tasks.GetTaskInfo(queue, info.ID)
		if err == nil && now.State != state {
			err = fmt.Errorf("%w: a job that should be %s is %s", errLayout, state, now.State)
		}
		return err
	}
	if err := p.deny(ctx, job{queue, info.ID}, time.Now().Add(time.Hour)); err != nil && unreachable(err) == nil {
		return fmt.Errorf("%w: %w", errLayout, err)
	} else if err != nil {
		return err
	}
	if err := want(asynq.TaskStateRetry); err != nil {
		return err
	}
	if _, err := p.promote(ctx, []job{{queue, info.ID}}); err != nil {
		return err
	}
	return want(asynq.TaskStatePending)
}

// deny does to the only pending job of a queue what asynq's dequeue and then a
// denial do. There is no worker of that queue that could do it.
func (p promoter) deny(ctx context.Context, j job, until time.Time) error {
	prefix := queuePrefix(j.queue)
	hash := prefix + "t:" + j.id
	msg, err := p.rdb.HGet(ctx, hash, "msg").Result()
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // asynq deletes no queue of which a job is active
	if err := p.rdb.RPopLPush(ctx, prefix+"pending", prefix+"active").Err(); err != nil {
		return err
	}
	w := writeBack{job: j, hash: hash, active: prefix + "active", lease: prefix + "lease", unique: true}
	keys := []string{w.active, w.lease, prefix + "retry", hash}
	return lua.PutBack.Run(ctx, p.rdb, keys, j.id, msg, unixCeil(until), w.uniqueSeconds(until), j.queue, "").Err()
}

// checkPromote turns promoting off if asynq's layout is another than it knows.
// It waits for as long as Redis cannot be asked, and asks twice: somebody may
// have flushed Redis meanwhile. It returns an error only if the context ended.
func (s *Server) checkPromote(ctx context.Context) error {
	queues := s.queueOutage.watch()
	for strange := 0; s.promotes.Load(); {
		err := queues.note(ctx, s.promoter.check(ctx))
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if unreachable(err) == nil {
			strange++
		}
		if strange > 1 {
			s.promotes.Store(false)
			s.log.Warn("denied jobs are left to asynq's own polls and come late", "reason", err)
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return ctx.Err()
}
