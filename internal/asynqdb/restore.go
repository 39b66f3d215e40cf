package asynqdb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// completedKept is the time for which Restore keeps a completed job whose own retention is lost.
const completedKept = 24 * time.Hour

// Reconcile calls Restore for all active jobs of a queue if the number of IDs in its active list
// differs from the number of its leases. It returns what Restore returns.
func (db DB) Reconcile(ctx context.Context, queue string) (restored int, lost []string, err error) {
	pipe := db.Redis.Pipeline()
	active, leases := pipe.LRange(ctx, Key(queue, Active), 0, -1), pipe.ZRange(ctx, Key(queue, Lease), 0, -1)
	if _, err := pipe.Exec(ctx); err != nil || len(active.Val()) == len(leases.Val()) {
		return 0, nil, err
	}
	return db.Restore(ctx, queue, slices.Concat(active.Val(), leases.Val())...)
}

var restoreScript = script.New("asynq/restore")

// Restore repairs jobs after Redis has lost data by eviction or in a failover. It adds each job to
// the list or set of the state in its hash. It deletes a job without a message after the job's
// lease. Restore returns the number of corrected entries (a job can have several), and the IDs of
// the active jobs that it deleted.
func (db DB) Restore(ctx context.Context, queue string, ids ...string) (restored int, lost []string, err error) {
	args := []any{Hash(queue, ""), time.Now().Unix(), int64(LeaseTime / time.Second), int64(completedKept / time.Second)}
	for _, id := range ids {
		args = append(args, id)
	}
	var keys []string
	for _, name := range []string{Pending, Active, Lease, Retry, Scheduled, Archived, Completed, Marker} {
		keys = append(keys, Key(queue, name))
	}
	if err := db.Redis.SAdd(ctx, queues, queue).Err(); err != nil {
		return 0, nil, err
	}
	reply, err := restoreScript.Run(ctx, db.Redis, keys, args...).Slice()
	if err != nil {
		return 0, nil, err
	}
	for _, id := range reply[1].([]any) {
		lost = append(lost, id.(string))
	}
	return int(reply[0].(int64)), lost, nil
}

// WalkInterval is the time between the starts of two walks through the jobs of a queue.
const WalkInterval = 30 * time.Second

// A Walk iterates over the jobs of some queues by their hashes, one page at a time.
type Walk struct {
	queues []string
	nodes  []redis.Cmdable
	cursor uint64
}

// NewWalk returns a Walk over those of the queues whose last walk began WalkInterval ago, by any
// process. The processes that serve a queue take turns, because a walk costs Redis a second for each
// 100,000 jobs.
func (db DB) NewWalk(ctx context.Context, queues []string) (*Walk, error) {
	w, begun := &Walk{}, make([]*redis.BoolCmd, len(queues))
	_, err := db.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			begun[i] = p.SetNX(ctx, Key(queue, Walked), "", WalkInterval)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, queue := range queues {
		if begun[i].Val() {
			w.queues = append(w.queues, queue)
		}
	}
	cluster, ok := db.Redis.(*redis.ClusterClient)
	if !ok && len(w.queues) > 0 {
		w.nodes = []redis.Cmdable{db.Redis}
	}
	for i := 0; ok && i < len(w.queues); i++ {
		master, err := cluster.MasterForKey(ctx, Key(w.queues[i], ""))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(w.nodes, redis.Cmdable(master)) {
			w.nodes = append(w.nodes, master)
		}
	}
	return w, nil
}

// walkPage is about the number of keys, of any kind, that one call of Next scans.
const walkPage = 1000

// Done reports whether Next has returned all jobs. It is true for a nil Walk.
func (w *Walk) Done() bool { return w == nil || len(w.nodes) == 0 }

// Next returns the job IDs of one page, by queue. A page may be empty before the last one. Two
// pages may have the same job. Call Next only if Done is false.
func (w *Walk) Next(ctx context.Context) (map[string][]string, error) {
	keys, cursor, err := w.nodes[0].Scan(ctx, w.cursor, Hash("*", "*"), walkPage).Result()
	if err != nil {
		return nil, fmt.Errorf("look for lost jobs: %w", err)
	}
	if w.cursor = cursor; cursor == 0 {
		w.nodes = w.nodes[1:]
	}
	jobs := map[string][]string{}
	for _, key := range keys {
		if queue, name := ParseKey(key); slices.Contains(w.queues, queue) {
			jobs[queue] = append(jobs[queue], strings.TrimPrefix(name, HashPrefix))
		}
	}
	return jobs, nil
}
