package asynqdb

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/script"
)

// maxGrantedAhead is the largest number of granted jobs at the head of a queue that stay in front of
// the jobs that Reorder moves.
const maxGrantedAhead = 64

var (
	orderScript   = script.New("asynq/order")
	reorderScript = script.New("asynq/reorder")
)

// Pending returns the IDs of up to n pending jobs at the head of a queue, the first one first. It
// leaves out granted jobs at the head, and returns their number. One server at a time gets the jobs
// of a queue, until it has not called Pending for the time `alone`; for all others, ok is false.
func (db DB) Pending(ctx context.Context, queue, server string, alone time.Duration, n int) (ids []string, granted int, ok bool, err error) {
	granted, err = orderScript.Run(ctx, db.Redis, []string{Key(queue, Pending), Key(queue, Orders)}, Hash(queue, ""), server, alone.Milliseconds(), maxGrantedAhead).Int()
	if err != nil || granted < 0 {
		return nil, 0, false, err
	}
	ids, err = db.Redis.LRange(ctx, Key(queue, Pending), int64(-granted-n), int64(-granted-1)).Result()
	slices.Reverse(ids)
	return ids, granted, err == nil, err
}

// Reorder moves pending jobs to the head of a queue, behind granted jobs, so that they run in the order
// of ids. The jobs are among the first n of the queue. Jobs that have been taken meanwhile are ignored.
func (db DB) Reorder(ctx context.Context, queue string, n int, ids []string) error {
	args := []any{Hash(queue, ""), n, maxGrantedAhead}
	for _, id := range ids {
		args = append(args, id)
	}
	return reorderScript.Run(ctx, db.Redis, []string{Key(queue, Pending)}, args...).Err()
}
