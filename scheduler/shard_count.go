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
	"github.com/headgate/headgate/throttle"
)

// storedShards returns the stored numbers of shards of the queues: 0 for a queue without shards, or
// without a stored number.
func storedShards(ctx context.Context, rdb redis.UniversalClient, queues []string) ([]int, error) {
	counts := make([]int, len(queues))
	cmds := make([]*redis.StringCmd, len(queues))
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			cmds[i] = p.Get(ctx, asynqdb.Key(queue, asynqdb.Shards))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	for i, cmd := range cmds {
		counts[i], _ = cmd.Int()
	}
	return counts, nil
}

// checkShards stores the number of shards of each queue. After its first success it does nothing.
// It returns an error if a queue's number has changed while jobs or workers use the old shards,
// because most keys now belong to other shards.
func (s *Server) checkShards(ctx context.Context) error {
	if s.shardsChecked.Load() {
		return nil
	}
	stored, err := storedShards(ctx, s.db.Redis, s.served)
	if err != nil {
		return fmt.Errorf("%w: %w", throttle.ErrUnavailable, err)
	}
	for i, queue := range s.served {
		if count := s.shards.Count(queue); count != stored[i] {
			if err := s.changeShards(ctx, queue, stored[i], count); err != nil {
				return err
			}
		}
	}
	s.shardsChecked.Store(true)
	return nil
}

// changeShards stores a queue's new number of shards, or returns an error if jobs or workers use
// the old shards. 0 means a queue without shards.
func (s *Server) changeShards(ctx context.Context, queue string, before, after int) error {
	names := []string{queue}
	if before > 0 {
		names = (shard.Queues{queue: {Count: before}}).Names(queue)
	}
	jobs, err := s.db.CountUnfinished(ctx, names)
	if err != nil {
		return fmt.Errorf("%w: %w", throttle.ErrUnavailable, err)
	}
	if jobs > 0 {
		return fmt.Errorf("queue %s has %s now, and %s left where it had %s: run workers with %s until they are done, then start this one",
			queue, formatShardCount(after), display.Count(int(jobs), "job"), formatShardCount(before), formatShardCount(before))
	}
	if before > 0 {
		rdb, _ := s.scopes[0].limiter.Scope()
		workers, err := stats.ReadProcesses(ctx, rdb, names[0])
		if err != nil {
			return fmt.Errorf("%w: %w", throttle.ErrUnavailable, err)
		}
		for _, w := range workers {
			if !w.Lost {
				return fmt.Errorf("queue %s has %s now, but process %d on %s still runs with %s: stop all such workers, then start this one",
					queue, formatShardCount(after), w.PID, w.Host, formatShardCount(before))
			}
		}
	}
	key := asynqdb.Key(queue, asynqdb.Shards)
	err = s.db.Redis.Set(ctx, key, after, 0).Err()
	if after == 0 {
		err = s.db.Redis.Del(ctx, key).Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", throttle.ErrUnavailable, err)
	}
	return nil
}

func formatShardCount(n int) string {
	if n == 0 {
		return "no shards"
	}
	return display.Count(n, "shard")
}
