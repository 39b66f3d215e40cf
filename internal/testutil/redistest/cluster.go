package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Cluster is three masters that share the slots, and their replicas, if any.
type Cluster struct {
	Nodes []*Server // masters first

	t TB
}

// masters is the number of masters of a [Cluster].
const masters = 3

// RunCluster starts three masters for a test, and waits until the cluster is complete.
func RunCluster(t TB) *Cluster {
	t.Helper()
	return runCluster(t, masters)
}

// RunReplicatedCluster is RunCluster with a replica of each master. A replica takes over only after
// [Cluster.Kill].
func RunReplicatedCluster(t TB) *Cluster {
	t.Helper()
	return runCluster(t, 2*masters)
}

func runCluster(t TB, nodes int) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range nodes {
		c.Nodes = append(c.Nodes, Run(t, "--cluster-enabled", "yes", "--cluster-node-timeout", strconv.Itoa(detectorTime), "--repl-diskless-sync-delay", "0"))
	}
	for i := range c.Nodes {
		c.must(c.join(i))
	}
	c.waitUntilComplete(c.Nodes)
	for i, replica := range c.Nodes[masters:] {
		c.must(replica.do("cluster", "replicate", c.id(c.Nodes[i])))
		c.must(c.Nodes[i].do("flushall"))
		c.must(replica.follow(c.Nodes[i]))
	}
	return c
}

func (c *Cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%v", err)
	}
}

// join gives a master its slots. It gives each node an epoch so that the nodes need not agree on one,
// and introduces it to the first node.
func (c *Cluster) join(i int) error {
	const slots = 16384
	err := c.Nodes[i].do("cluster", "set-config-epoch", i+1)
	if i < masters {
		err = errors.Join(err, c.Nodes[i].do("cluster", "addslotsrange", i*slots/masters, (i+1)*slots/masters-1))
	}
	if i > 0 {
		err = errors.Join(err, c.Nodes[i].do("cluster", "meet", "127.0.0.1", c.Nodes[0].portText()))
	}
	return err
}

// waitUntilComplete waits until each of these nodes knows all nodes and serves all slots.
func (c *Cluster) waitUntilComplete(nodes []*Server) {
	c.t.Helper()
	for _, node := range nodes {
		rdb := node.Client()
		defer rdb.Close()
		c.must(poll("cluster node at "+node.Addr(), func(ctx context.Context) error {
			info, err := rdb.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			return errors.Join(wantField(info, "cluster_known_nodes", strconv.Itoa(len(c.Nodes))), wantField(info, "cluster_state", "ok"))
		}))
	}
}

func (c *Cluster) id(node *Server) (id string) {
	rdb := node.Client()
	defer rdb.Close()
	id, err := rdb.Do(context.Background(), "cluster", "myid").Text()
	c.must(err)
	return id
}

// Master returns the node that serves a key.
func (c *Cluster) Master(key string) *Server {
	c.t.Helper()
	rdb := c.Client()
	defer rdb.Close()
	master, err := rdb.MasterForKey(context.Background(), key)
	c.must(err)
	for _, node := range c.Nodes {
		if node.Addr() == master.Options().Addr {
			return node
		}
	}
	c.t.Fatalf("no node has the address %s", master.Options().Addr)
	return nil
}

// Kill kills a master, and waits until its replica serves all of its slots. It returns the replica,
// which has all writes from before the call.
func (c *Cluster) Kill(master *Server) (successor *Server) {
	c.t.Helper()
	for _, node := range c.Nodes {
		if node.Pid() == 0 {
			continue
		}
		rdb := node.Client()
		info, err := rdb.Info(context.Background(), "replication").Result()
		_ = rdb.Close()
		if c.must(err); wantField(info, "master_port", master.portText()) == nil {
			c.detectAfter(3000)
			c.must(node.follow(master))
			c.must(master.Stop())
			c.must(node.waitForRole("master"))
			c.waitUntilComplete([]*Server{node})
			c.detectAfter(detectorTime)
			return node
		}
	}
	c.t.Fatalf("%s has no replica", master.Addr())
	return nil
}

// detectAfter sets after how many milliseconds the nodes that run take another one for dead.
func (c *Cluster) detectAfter(ms int) {
	c.t.Helper()
	for _, node := range c.Nodes {
		if node.Pid() != 0 {
			c.must(node.do("config", "set", "cluster-node-timeout", ms))
		}
	}
}

// Revive starts a dead node again, and waits until it is a replica of the node that has its slots now.
func (c *Cluster) Revive(dead, successor *Server) {
	c.t.Helper()
	c.must(dead.Restart())
	c.must(dead.waitForRole("slave"))
	c.must(dead.follow(successor))
}

// MoveSlot moves the slot of a key from one master to another, key by key. It calls between after each
// batch of up to n keys, with the number of keys moved so far.
func (c *Cluster) MoveSlot(key string, n int, between func(moved int)) {
	c.t.Helper()
	ctx := context.Background()
	from := c.Master(key)
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	source := from.Client()
	defer source.Close()
	slot, err := source.ClusterKeySlot(ctx, key).Result()
	c.must(err)
	c.must(to.do("cluster", "setslot", slot, "importing", c.id(from)))
	c.must(from.do("cluster", "setslot", slot, "migrating", c.id(to)))
	for moved := 0; ; {
		keys, err := source.ClusterGetKeysInSlot(ctx, int(slot), n).Result()
		c.must(err)
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", "127.0.0.1", to.portText(), "", 0, detectorTime, "keys"}
		for _, key := range keys {
			args = append(args, key)
		}
		c.must(from.do(args...))
		moved += len(keys)
		between(moved)
	}
	for _, node := range []*Server{to, from} {
		if err := node.do("cluster", "setslot", slot, "node", c.id(to)); err != nil {
			c.must(fmt.Errorf("end the move of slot %d: %w", slot, err))
		}
	}
}

// Options returns new options for a client.
func (c *Cluster) Options() *redis.ClusterOptions {
	options := &redis.ClusterOptions{
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: noNotifications(),
	}
	for _, node := range c.Nodes {
		options.Addrs = append(options.Addrs, node.Addr())
	}
	return options
}

// Client returns a new client, which the caller must close.
func (c *Cluster) Client() *redis.ClusterClient { return redis.NewClusterClient(c.Options()) }
