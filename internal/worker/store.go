package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/words"
)

// store is the Redis of a worker. Where none is configured it is the embedded
// one, which this worker runs unless another does.
type store struct {
	redis.UniversalClient
	host   *embedded.Host        // nil where a Redis is configured
	lent   bool                  // by whom closes it
	said   atomic.Bool           // that it cannot take over
	config func() *config.Config // that is current
	log    *slog.Logger
	notes  io.Writer
}

func (s *store) open(ctx context.Context) (err error) {
	if s.lent {
		return nil
	}
	if c := s.config(); !c.Redis.IsZero() { // which may be away for now: see await
		s.UniversalClient, err = c.Redis.Client()
		return err
	}
	folder, err := embedded.Default()
	if err != nil {
		return err
	}
	s.host = folder.NewHost(func(server *embedded.Server) (func(), error) {
		return s.prepare(context.WithoutCancel(ctx), server)
	})
	if err = s.join(ctx); err != nil {
		if lost := s.host.Close(); lost != nil { // it keeps what it has taken over
			return fmt.Errorf("%s\n%w", err.Error(), lost) // a stop is no reason to hide that
		}
	}
	return err
}

// join connects to the embedded Redis, which this worker runs then if no other does.
func (s *store) join(ctx context.Context) error {
	addr, err := s.host.Addr(ctx)
	if err != nil {
		return err
	}
	if !s.host.Runs() {
		fmt.Fprintf(s.notes, "worker: using the Redis within another process, at %s\n", addr)
	}
	s.UniversalClient, err = config.EmbeddedRedis(s.dial).Connect(ctx)
	return err
}

// dial connects to the embedded Redis. That this worker should take over and
// cannot is said once.
func (s *store) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := s.host.Dial(ctx, network, addr)
	_, cannot := errors.AsType[*embedded.StartError](err)
	if said := s.said.Swap(cannot); cannot && !said {
		fmt.Fprintf(s.notes, "worker: the process with the Redis has stopped, and this one cannot take over: %v\n", err)
	}
	return conn, err
}

// prepare gives an embedded Redis that this worker has just started its limits.
func (s *store) prepare(ctx context.Context, server *embedded.Server) (started func(), err error) {
	server.Saving = s.saving
	rdb, err := config.ConnectEmbedded(ctx, server.Addr())
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	c := s.config()
	if err := c.Limiter(rdb).Define(ctx, c.Limits...); err != nil {
		return nil, err
	}
	before, err := waitingJobs(rdb)
	if err != nil {
		return nil, err
	}
	return func() { s.tell(server, before) }, nil
}

func (s *store) tell(server *embedded.Server, before int) {
	if loss := server.Loss(); loss != "" {
		fmt.Fprintln(s.notes, "worker: "+loss)
	}
	if s.UniversalClient == nil { // it is the first
		fmt.Fprintf(s.notes, "worker: no Redis is configured: using one within this worker, at %s; a stop keeps what is in it, a crash loses its last second or two\n", server.Addr())
	} else {
		fmt.Fprintf(s.notes, "worker: the process with the Redis has stopped: it is within this worker now, at %s\n", server.Addr())
	}
	if before > 0 {
		fmt.Fprintf(s.notes, "worker: waiting in it from before: %s\n", words.Count(before, "job"))
	}
}

// saving says that what is in Redis can no longer be saved, or can again.
func (s *store) saving(err error) {
	if err != nil {
		s.log.Error("cannot save what is in the Redis within this worker: a crash would lose it", "error", err)
		return
	}
	s.log.Info("what is in the Redis within this worker is saved again")
}

// warn says how many jobs are kept only if the worker may stop in peace.
func (s *store) warn() {
	if s.host == nil || !s.host.Runs() {
		return
	}
	if n, err := waitingJobs(s); err == nil && n > 0 {
		fmt.Fprintf(s.notes, "worker: to be kept at the end, but for the last second or two if a second signal ends this worker at once: %s\n", words.Count(n, "job"))
	}
}

// close ends the client and, if it is within this worker, Redis.
func (s *store) close() {
	if s.lent {
		return
	}
	if s.host == nil || !s.host.Runs() {
		_ = s.Close()
		return
	}
	n, _ := waitingJobs(s)
	_ = s.Close()
	switch err := s.host.Close(); {
	case err != nil:
		fmt.Fprintf(s.notes, "worker: not kept at the end: %s: the next \"worker run\" has what was saved last: %v\n", words.Count(n, "job"), err)
	case n > 0:
		fmt.Fprintf(s.notes, "worker: kept for the next \"worker run\": %s\n", words.Count(n, "job"))
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
