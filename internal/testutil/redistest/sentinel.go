package redistest

import (
	"cmp"
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// PrimaryName is the name that a [Sentinel] gives to the primary it watches.
const PrimaryName = "headgate"

// A Sentinel is a primary, its replica and the one sentinel that watches them.
type Sentinel struct {
	Primary, Replica, Watcher *Server
}

// RunSentinel gives all three, which only this test uses, once the sentinel knows that the
// replica is in step.
func RunSentinel(t TB) *Sentinel {
	t.Helper()
	s := &Sentinel{Primary: Run(t, "--repl-diskless-sync-delay", "0")}
	s.Replica = Run(t, "--replicaof", "127.0.0.1", s.Primary.portText())
	err := s.Replica.waitFor("replication", "master_link_status", "up")
	s.Watcher = Run(t, "--sentinel")
	if err = cmp.Or(err, s.watch()); err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

// watch tells the sentinel of the primary, and waits until it has found the
// replica by itself.
func (s *Sentinel) watch() error {
	rdb := redis.NewSentinelClient(s.Watcher.Options())
	defer rdb.Close()
	ctx := context.Background()
	err := errors.Join(
		rdb.Monitor(ctx, PrimaryName, "127.0.0.1", s.Primary.portText(), "1").Err(),
		rdb.Set(ctx, PrimaryName, "down-after-milliseconds", "30000").Err(), // a busy machine may let the primary sleep
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
			return errors.New("it does not see the replica in step yet")
		}
		return nil
	})
}

// Options are what a client needs that asks the sentinel for the primary.
func (s *Sentinel) Options() *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName:    PrimaryName,
		SentinelAddrs: []string{s.Watcher.Addr()},
	}
}

// Client connects to whatever server is the primary at the time. The caller
// must close the client.
func (s *Sentinel) Client() *redis.Client { return redis.NewFailoverClient(s.Options()) }

// Lag cuts the replica off: it hears nothing more of what the primary is told.
func (s *Sentinel) Lag() error {
	rdb := s.Primary.Client()
	defer rdb.Close()
	ctx := context.Background()
	return errors.Join(
		rdb.Do(ctx, "ACL", "SETUSER", "default", "-psync", "-sync").Err(),
		rdb.Do(ctx, "CLIENT", "KILL", "TYPE", "replica").Err(),
	)
}

// FailOver kills the primary, has the sentinel fail over and waits until the replica is
// the primary.
func (s *Sentinel) FailOver() error {
	rdb := redis.NewSentinelClient(s.Watcher.Options())
	defer rdb.Close()
	if err := errors.Join(s.Primary.Stop(), rdb.Failover(context.Background(), PrimaryName).Err()); err != nil {
		return err
	}
	return s.Replica.waitFor("replication", "role", "master")
}
