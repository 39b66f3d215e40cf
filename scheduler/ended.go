package scheduler

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
)

// handled is what this process knows of an attempt that has ended.
type handled struct {
	took  time.Duration
	since time.Time // when its job came to its lane first, unless it is done
}

// ended notes for people how an attempt has ended that asynq has just written: one that
// failed, and one that succeeded after that where the job is kept. A job that succeeds at once
// costs nothing here. What Redis does not take is not noted.
func (q *queueRedis) ended(ctx context.Context, c asynqdb.Call) {
	end := asynqdb.Attempt{At: time.Now(), Worker: asynqdb.Here()}
	switch c.Script {
	case asynqdb.ScriptRetry, asynqdb.ScriptArchive:
		m, err := asynqdb.ParseMessage(c.Msg)
		if err != nil {
			return
		}
		end.Error = m.LastError
		if m.LastError == asynq.ErrLeaseExpired.Error() {
			end.Worker = "" // another's
		}
	case asynqdb.ScriptComplete:
	default:
		return
	}
	j := job{Queue: c.Queue, ID: c.ID}
	ran, ok := q.runs.get(j)
	if !ok && end.Error == "" {
		return
	}
	q.runs.remove(j)
	end.Took = ran.took
	_ = q.db.NoteAttempt(ctx, c.Queue, c.ID, end)
}
