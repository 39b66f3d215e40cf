package asynqdb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A job stands in two or three of asynq's keys: in its hash, and in its queue's list or sorted
// sets. Redis can lose one of them, by eviction or in a failover, and asynq leaves such a job as
// it is for ever. What follows brings it back.

// completedKept is how long a completed job is kept if Redis has lost how long it was to be.
const completedKept = 24 * time.Hour

// Drop drops an active job without a message, whose lease had ended by a unix second, and
// reports whether it was one.
func (db DB) Drop(ctx context.Context, queue, id string, ended int64) (bool, error) {
	return dropScript.Run(ctx, db.Redis, []string{Hash(queue, id), Key(queue, Active), Key(queue, Lease)}, id, ended).Bool()
}

// Reconcile has a queue's active list and its leases tell of the same jobs, if there are more of
// one than of the other. It returns how many jobs Redis had lost from one of the two.
func (db DB) Reconcile(ctx context.Context, queue string) (repaired int, err error) {
	active, err := db.Redis.LLen(ctx, Key(queue, Active)).Result()
	if err != nil {
		return 0, err
	}
	leases, err := db.Redis.ZCard(ctx, Key(queue, Lease)).Result()
	if err != nil || active == leases {
		return 0, err
	}
	ends := time.Now().Add(LeaseTime).Unix()
	return reconcileScript.Run(ctx, db.Redis, []string{Key(queue, Active), Key(queue, Lease)}, Hash(queue, ""), ends).Int()
}

// Restore puts jobs of a queue back to where their hashes say they are, and returns how many
// Redis had lost from there.
func (db DB) Restore(ctx context.Context, queue string, ids ...string) (restored int, err error) {
	args := []any{Hash(queue, ""), time.Now().Unix(), int64(LeaseTime / time.Second), int64(completedKept / time.Second)}
	for _, id := range ids {
		args = append(args, id)
	}
	var keys []string
	for _, name := range []string{Pending, Active, Lease, Retry, Scheduled, Archived, Completed, Bell} {
		keys = append(keys, Key(queue, name))
	}
	if err := db.Redis.SAdd(ctx, queues, queue).Err(); err != nil {
		return 0, err
	}
	return restoreScript.Run(ctx, db.Redis, keys, args...).Int()
}

// A Walk goes through the jobs of all queues by their hashes, a page at a time.
type Walk struct {
	nodes  []redis.Cmdable
	cursor uint64
}

// NewWalk is a walk through the servers that have the jobs of these queues.
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

// walkPage is about how many keys, of whatever kind, a page looks at.
const walkPage = 1000

// Done reports whether the walk is over. A nil Walk is.
func (w *Walk) Done() bool { return w == nil || len(w.nodes) == 0 }

// Next returns the IDs of the next jobs by their queues. Some may come twice.
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
		if queue, id, ok := strings.Cut(strings.TrimPrefix(key, "asynq:{"), "}:t:"); ok {
			jobs[queue] = append(jobs[queue], id)
		}
	}
	return jobs, nil
}
