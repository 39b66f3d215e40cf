package worker

import (
	"context"
	"fmt"
	"io"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/words"
	"github.com/headgate/headgate/lua"
)

// store is the Redis of a worker.
type store struct {
	redis.UniversalClient
	user  string // of Redis
	lent  bool   // whether the program that runs the worker closes it
	where string // the folder of the embedded Redis; empty if a Redis is configured
	notes io.Writer
}

// User is the user of Redis, for messages about missing rights.
func (s *store) User() string { return s.user }

func (s *store) open(ctx context.Context, r config.Redis) (err error) {
	if s.lent {
		s.user = lua.User(s.UniversalClient)
		return nil
	}
	s.user = r.User()
	if !r.IsZero() { // it may be away for now: see await
		s.UniversalClient, err = r.Client()
		return err
	}
	s.UniversalClient, err = r.Create(ctx, func(line string) { fmt.Fprintln(s.notes, "worker: "+line) })
	if err == nil {
		s.where = r.Folder()
		s.count("waiting in %s from before: %s")
	}
	return err
}

// count says how many jobs are in the embedded Redis, if there are any.
func (s *store) count(text string) {
	if s.where == "" {
		return
	}
	if n, err := waitingJobs(s); err == nil && n > 0 {
		fmt.Fprintf(s.notes, "worker: "+text+"\n", s.where, words.Count(n, "job"))
	}
}

// close ends the client and, if this worker runs it, the embedded Redis.
func (s *store) close() {
	if s.lent {
		return
	}
	s.count("kept in %s for the next \"worker run\": %s")
	if err := s.Close(); err != nil && s.where != "" {
		fmt.Fprintf(s.notes, "worker: %v\n", err)
	}
}

func waitingJobs(rdb redis.UniversalClient) (int, error) {
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	queues, err := inspector.Queues()
	n := 0
	for _, queue := range queues {
		info, err := inspector.GetQueueInfo(queue)
		if err != nil {
			return n, err
		}
		n += info.Pending + info.Active + info.Scheduled + info.Retry + info.Aggregating
	}
	return n, err
}
