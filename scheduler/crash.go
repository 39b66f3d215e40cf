package scheduler

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
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
func (q *queueRedis) crashed(ctx context.Context, c *asynqdb.Call, m asynqdb.Message) *redis.Cmd {
	msg := c.Msg
	if c.Failed {
		msg = asynqdb.WithRetried(msg, m.Retried-1)
	}
	forgiven, err := q.db.Forgive(ctx, c.Queue, c.ID, msg, m.Unique, q.forgiven, 0)
	if forgiven || err != nil {
		return answer(ctx, err)
	}
	if c.Script == asynqdb.ScriptArchive { // say more than asynq does
		reason := fmt.Sprintf("its worker died while it ran, again: %d times that was forgiven, after that it counts as a failure", q.forgiven)
		c.SetMsg(asynqdb.WithLastError(c.Msg, reason))
	}
	return nil
}
