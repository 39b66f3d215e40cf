package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/stats"
)

// storedShardCount returns the stored number of shards of a queue: 0 if the queue has no shards, or
// no valid number is stored.
func storedShardCount(ctx context.Context, rdb redis.UniversalClient, queue string) (int, error) {
	stored := rdb.Get(ctx, asynqdb.Key(queue, asynqdb.Shards))
	if err := stored.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	count, _ := stored.Int()
	return count, nil
}

// oldShardsError says that a queue's number of shards has changed while jobs or workers use the old
// shards.
type oldShardsError string

// Error implements error.
func (e oldShardsError) Error() string { return string(e) }

// checkShards stores the number of shards of each queue. After its first success it does nothing.
// It returns an oldShardsError or an error of Redis.
func (s *Server) checkShards(ctx context.Context) error {
	if s.shardsChecked.Load() {
		return nil
	}
	for _, queue := range s.served {
		count := s.shards.Count(queue)
		before, err := storedShardCount(ctx, s.db.Redis, queue)
		if err == nil && count != before {
			err = s.changeShards(ctx, queue, before, count)
		}
		if err != nil {
			return err
		}
	}
	s.shardsChecked.Store(true)
	return nil
}

// changeShards stores a queue's new number of shards, unless jobs or workers use the old shards. A
// number of 0 means that the queue has no shards.
func (s *Server) changeShards(ctx context.Context, queue string, before, after int) error {
	names := (shard.Queues{queue: {Count: before}}).Names(queue)
	jobs, err := s.db.CountUnfinished(ctx, names)
	if err != nil {
		return err
	}
	if jobs > 0 {
		return oldShardsError(fmt.Sprintf("queue %s has %s now, and %s left where it had %s: run workers with %s until they are done, then start this one",
			queue, formatShardCount(after), display.Count(int(jobs), "job"), formatShardCount(before), formatShardCount(before)))
	}
	if before > 0 {
		rdb, _ := s.scopes[0].limiter.Scope()
		workers, err := stats.ReadProcesses(ctx, rdb, names[0])
		if err != nil {
			return err
		}
		for _, w := range workers {
			if !w.Lost {
				return oldShardsError(fmt.Sprintf("queue %s has %s now, but process %d on %s still runs with %s: stop all such workers, then start this one",
					queue, formatShardCount(after), w.PID, w.Host, formatShardCount(before)))
			}
		}
	}
	key := asynqdb.Key(queue, asynqdb.Shards)
	if after == 0 {
		return s.db.Redis.Del(ctx, key).Err()
	}
	return s.db.Redis.Set(ctx, key, after, 0).Err()
}

func formatShardCount(n int) string {
	if n == 0 {
		return "no shards"
	}
	return display.Count(n, "shard")
}
