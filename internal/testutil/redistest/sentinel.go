package redistest

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// PrimaryName is the name of the primary at a [Sentinel].
const PrimaryName = "headgate"

// Sentinel is a sentinel that watches a primary and its replica.
type Sentinel struct {
	Watcher          *Server
	primary, replica *Server
}

// RunSentinel starts all three for a test, and waits until the sentinel sees the replica in sync.
func RunSentinel(t TB) *Sentinel {
	t.Helper()
	s := &Sentinel{primary: Run(t, "--repl-diskless-sync-delay", "0")}
	s.replica = Run(t, "--replicaof", "127.0.0.1", s.primary.portText())
	err := errors.Join(s.primary.do("flushall"), s.replica.follow(s.primary))
	s.Watcher = Run(t, "--sentinel")
	if err == nil {
		err = s.watch()
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

func (s *Sentinel) watch() error {
	rdb := redis.NewSentinelClient(s.Watcher.Options())
	defer rdb.Close()
	ctx := context.Background()
	err := errors.Join(
		rdb.Monitor(ctx, PrimaryName, "127.0.0.1", s.primary.portText(), "1").Err(),
		rdb.Set(ctx, PrimaryName, "down-after-milliseconds", strconv.Itoa(detectorTime)).Err(),
		rdb.Set(ctx, PrimaryName, "failover-timeout", "2000").Err(),
	)
	if err != nil {
		return err
	}
	return poll("sentinel at "+s.Watcher.Addr(), func(ctx context.Context) error {
		replicas, err := rdb.Replicas(ctx, PrimaryName).Result()
		if err != nil {
			return err
		}
		if len(replicas) != 1 || replicas[0]["master-link-status"] != "ok" {
			return errors.New("it does not see the replica in sync")
		}
		return nil
	})
}

// KillPrimary kills the primary, and waits until the replica, which has all writes from before the
// call, is the new one.
func (s *Sentinel) KillPrimary() error {
	rdb := redis.NewSentinelClient(s.Watcher.Options())
	defer rdb.Close()
	detectAfter := func(ms int) error {
		return rdb.Set(context.Background(), PrimaryName, "down-after-milliseconds", strconv.Itoa(ms)).Err()
	}
	return errors.Join(
		detectAfter(500),
		s.replica.follow(s.primary),
		s.primary.Stop(),
		s.replica.waitForRole("master"),
		detectAfter(detectorTime),
	)
}

// Kill kills the sentinel, the primary and the replica.
func (s *Sentinel) Kill() error {
	return errors.Join(s.Watcher.Stop(), s.primary.Stop(), s.replica.Stop())
}

// Options returns options for a client that asks the sentinel for the primary.
func (s *Sentinel) Options() *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName: PrimaryName, SentinelAddrs: []string{s.Watcher.Addr()},
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, ContextTimeoutEnabled: true,
	}
}

// Client returns a new client of the current primary, which the caller must close.
func (s *Sentinel) Client() *redis.Client { return redis.NewFailoverClient(s.Options()) }
