package scheduler

import (
	"context"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/attempts"
)

// handled is what this process knows of an attempt that has ended.
type handled struct {
	took  time.Duration
	since time.Time // when its job came to its lane first, unless it is done
}

// ended notes for people how an attempt has ended that asynq has just written: one that
// failed, and one that succeeded after that where the job is kept. A job that succeeds at once
// costs nothing here. What Redis does not take is not noted.
func (q *queueRedis) ended(ctx context.Context, keys []string, args []any) {
	end := attempts.Attempt{At: time.Now(), Worker: attempts.Here()}
	w, ok := asWriteBack(keys, args)
	if ok {
		m, err := parseMessage(w.msg)
		if err != nil {
			return
		}
		end.Error = m.lastError
		if m.lastError == asynq.ErrLeaseExpired.Error() {
			end.Worker = "" // another's
		}
	} else if w.hash, w.job, ok = asCompletion(keys, args); !ok {
		return
	}
	ran, ok := q.runs.get(w.job)
	if !ok && end.Error == "" {
		return
	}
	q.runs.remove(w.job)
	end.Took = ran.took
	_ = attempts.Note(ctx, q.UniversalClient, w.hash, end, stood{ran.since, w.at}.String())
}

// asCompletion recognises asynq's script MarkAsComplete by its keys: the active list, the
// leases, the set of the completed, and the job's hash. The arguments begin with its ID.
func asCompletion(keys []string, args []any) (hash string, j job, ok bool) {
	if len(keys) < 6 || len(args) < 4 {
		return "", job{}, false
	}
	queue, isCompleted := strings.CutSuffix(keys[2], "}:completed")
	queue, isQueue := strings.CutPrefix(queue, "asynq:{")
	id, isID := args[0].(string)
	return keys[3], job{queue, id}, isCompleted && isQueue && isID
}
