package scheduler

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/turns"
)

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
func promote(ctx context.Context, db asynqdb.DB, jobs []job) ([]turns.Fate, error) {
	ids, indexes := map[string][]string{}, map[string][]int{}
	for i, j := range jobs {
		ids[j.Queue], indexes[j.Queue] = append(ids[j.Queue], j.ID), append(indexes[j.Queue], i)
	}
	found := make([]turns.Fate, len(jobs))
	for queue, ids := range ids {
		words, err := db.Promote(ctx, queue, ids...)
		if err != nil {
			return nil, err
		}
		for k, i := range indexes[queue] {
			found[i] = fates[words[k]]
		}
	}
	return found, nil
}

// checkPromote turns promoting off if asynq's layout is another than it knows.
// It waits for as long as Redis cannot be asked, and asks twice: somebody may
// have flushed Redis meanwhile. It returns an error only if the context ended.
func (s *Server) checkPromote(ctx context.Context) error {
	queues := s.queueOutage.watch()
	for strange := 0; s.promotes.Load(); {
		err := queues.note(ctx, s.db.Check(ctx))
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
