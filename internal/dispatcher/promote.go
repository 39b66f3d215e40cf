package dispatcher

import (
	"context"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// fates are the words of lua/asynq/promote.lua.
var fates = map[string]fairqueue.State{
	"moved":   fairqueue.StateMoved,
	"active":  fairqueue.StateActive,  // its handler has not returned yet: try again soon
	"pending": fairqueue.StatePending, // it comes anyway
	"done":    fairqueue.StateDone,    // it waits for no permit: archived, completed, enqueued anew …
	"gone":    fairqueue.StateGone,    // deleted
}

// Promote moves called jobs to the head of their queues, behind those promoted
// before; the first to run comes first. It returns what became of each: one
// round trip per queue. It is exact where a poll of asynq's would be seconds late,
// and harmless for jobs that do not wait: their fates say what they do instead.
// After an error the jobs of some queues may have been moved; to ask again is safe.
func Promote(ctx context.Context, db asynqdb.DB, jobs []throttle.JobID) ([]fairqueue.State, error) {
	ids, indexes := map[string][]string{}, map[string][]int{}
	for i, j := range jobs {
		ids[j.Queue], indexes[j.Queue] = append(ids[j.Queue], j.ID), append(indexes[j.Queue], i)
	}
	found := make([]fairqueue.State, len(jobs))
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
