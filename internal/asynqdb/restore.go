package asynqdb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// completedKept is the retention of a completed job if Redis has lost its own retention.
const completedKept = 24 * time.Hour

// Reconcile restores the jobs that are in the active list or in the leases of a queue, but not in
// both. It does so only if the list and the leases differ in length. It returns the number of
// restored jobs.
func (db DB) Reconcile(ctx context.Context, queue string) (repaired int, err error) {
	pipe := db.Redis.Pipeline()
	active, leases := pipe.LRange(ctx, Key(queue, Active), 0, -1), pipe.ZRange(ctx, Key(queue, Lease), 0, -1)
	if _, err := pipe.Exec(ctx); err != nil || len(active.Val()) == len(leases.Val()) {
		return 0, err
	}
	return db.Restore(ctx, queue, slices.Concat(active.Val(), leases.Val())...)
}

// Restore repairs jobs whose hash, or whose entry in a list or sorted set of the queue, Redis has
// lost by eviction or in a failover. asynq itself never repairs them. Restore adds each job to the
// list or set that the state in its hash names. It deletes a job without a message whose lease is
// over, because such a job cannot run. It returns the number of jobs whose entries were wrong.
func (db DB) Restore(ctx context.Context, queue string, ids ...string) (restored int, err error) {
	args := []any{Hash(queue, ""), time.Now().Unix(), int64(LeaseTime / time.Second), int64(completedKept / time.Second)}
	for _, id := range ids {
		args = append(args, id)
	}
	var keys []string
	for _, name := range []string{Pending, Active, Lease, Retry, Scheduled, Archived, Completed, Marker} {
		keys = append(keys, Key(queue, name))
	}
	if err := db.Redis.SAdd(ctx, queues, queue).Err(); err != nil {
		return 0, err
	}
	return restoreScript.Run(ctx, db.Redis, keys, args...).Int()
}

// A Walk iterates over the jobs of all queues by their hashes, one page at a time.
type Walk struct {
	nodes  []redis.Cmdable
	cursor uint64
}

// NewWalk returns a Walk over the Redis servers that hold the jobs of these queues.
func (db DB) NewWalk(ctx context.Context, queues []string) (*Walk, error) {
	cluster, ok := db.Redis.(*redis.ClusterClient)
	if !ok {
		return &Walk{nodes: []redis.Cmdable{db.Redis}}, nil
	}
	w := &Walk{}
	for _, queue := range queues {
		master, err := cluster.MasterForKey(ctx, Key(queue, ""))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(w.nodes, redis.Cmdable(master)) {
			w.nodes = append(w.nodes, master)
		}
	}
	return w, nil
}

// walkPage is the approximate number of keys of any kind that one page scans.
const walkPage = 1000

// Done reports whether the Walk has returned all jobs. A nil Walk is done.
func (w *Walk) Done() bool { return w == nil || len(w.nodes) == 0 }

// Next returns the IDs of the next jobs by queue. It may return a job twice.
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
		queue, name := ParseKey(key)
		jobs[queue] = append(jobs[queue], strings.TrimPrefix(name, HashPrefix))
	}
	return jobs, nil
}
