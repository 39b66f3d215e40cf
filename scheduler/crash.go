package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
)

// forgivenCrashes is how often a job's worker may die before that counts. Deploys
// and machines that go away kill workers through no fault of the job's; a job that
// takes its worker with it does so each time.
const forgivenCrashes = 3

// crashed writes a job back whose worker died, as asynq's recoverer found, which
// comes late: see recovery. The first crashes are forgiven: the job runs again and no attempt is spent, also
// where it was the last. After that asynq's own script runs, for which a crash
// is a failure, so that a job that kills its workers ends in the archive: crashed
// returns nil then.
//
// The count is in a field of the job's hash and goes with it. It is never set back:
// what counts is the crashes in all, not those in a row.
func (q *queueRedis) crashed(ctx context.Context, w writeBack, m message, args []any) *redis.Cmd {
	msg := w.msg
	if isFailure, _ := args[4].(bool); isFailure && !w.archive { // Retry has counted it
		msg = withRetried(msg, m.retried-1)
	}
	cmd := q.forgive(ctx, w, msg)
	if done, err := cmd.Int(); err != nil || done == 1 {
		return cmd
	}
	if w.archive { // say more than asynq does
		reason := fmt.Sprintf("its worker died while it ran, again: %d times that was forgiven, after that it counts as a failure", q.forgiven)
		args[1] = withLastError(w.msg, reason)
	}
	return nil
}

// forgive puts a job back whose worker died, with msg, if that is forgiven still.
func (q *queueRedis) forgive(ctx context.Context, w writeBack, msg []byte, ends ...any) *redis.Cmd {
	now := time.Now()
	args := append([]any{w.id, msg, now.Unix(), w.uniqueSeconds(now), q.forgiven}, ends...)
	return lua.Crash.Run(ctx, q.UniversalClient, w.keys(), args...)
}
