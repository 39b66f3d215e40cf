package redistest

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// PrimaryName is the name of the primary at a [Sentinel].
const PrimaryName = "headgate"

// Sentinel is a primary, its replica and the sentinel that watches them.
type Sentinel struct {
	Primary, Replica, Watcher *Server
}

// RunSentinel starts all three for a test, and waits until the sentinel sees the replica in sync.
func RunSentinel(t TB) *Sentinel {
	t.Helper()
	s := &Sentinel{Primary: Run(t, "--repl-diskless-sync-delay", "0")}
	s.Replica = Run(t, "--replicaof", "127.0.0.1", s.Primary.portText())
	err := s.Replica.waitForInfo(func(info string) error { return wantField(info, "master_link_status", "up") }, "replication")
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
		rdb.Monitor(ctx, PrimaryName, "127.0.0.1", s.Primary.portText(), "1").Err(),
		rdb.Set(ctx, PrimaryName, "down-after-milliseconds", "30000").Err(), // for a busy machine
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

// Options returns options for a client that asks the sentinel for the primary.
func (s *Sentinel) Options() *redis.FailoverOptions {
	return &redis.FailoverOptions{MasterName: PrimaryName, SentinelAddrs: []string{s.Watcher.Addr()}}
}

// Client returns a new client of the current primary, which the caller must close.
func (s *Sentinel) Client() *redis.Client { return redis.NewFailoverClient(s.Options()) }

// Lag cuts the replica off from the primary.
func (s *Sentinel) Lag() error {
	rdb := s.Primary.Client()
	defer rdb.Close()
	ctx := context.Background()
	return errors.Join(
		rdb.Do(ctx, "ACL", "SETUSER", "default", "-psync", "-sync").Err(),
		rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err(),
	)
}

// FailOver kills the primary, and waits until the replica has taken over.
func (s *Sentinel) FailOver() error {
	rdb := redis.NewSentinelClient(s.Watcher.Options())
	defer rdb.Close()
	if err := errors.Join(s.Primary.Stop(), rdb.Failover(context.Background(), PrimaryName).Err()); err != nil {
		return err
	}
	return s.Replica.waitForInfo(func(info string) error { return wantField(info, "role", "master") }, "replication")
}
