package redistest

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Cluster is three primaries that share the slots, without replicas.
type Cluster struct {
	Nodes []*Server
}

// RunCluster starts a cluster for a test, and waits until it is complete.
func RunCluster(t TB) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range 3 {
		c.Nodes = append(c.Nodes, Run(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
	}
	for i := range c.Nodes {
		if err := c.join(i); err != nil {
			t.Fatalf("%v", err)
		}
	}
	for _, node := range c.Nodes {
		if err := c.waitUntilComplete(node); err != nil {
			t.Fatalf("%v", err)
		}
	}
	return c
}

// join gives a node its slots, and an epoch so that the nodes need not agree on one, and introduces
// it to the first node.
func (c *Cluster) join(i int) error {
	const slots = 16384
	rdb := c.Nodes[i].Client()
	defer rdb.Close()
	ctx, n := context.Background(), len(c.Nodes)
	err := errors.Join(
		rdb.ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err(),
		rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err(),
	)
	if i > 0 {
		err = errors.Join(err, rdb.ClusterMeet(ctx, "127.0.0.1", c.Nodes[0].portText()).Err())
	}
	return err
}

func (c *Cluster) waitUntilComplete(node *Server) error {
	rdb := node.Client()
	defer rdb.Close()
	return poll("cluster node at "+node.Addr(), func(ctx context.Context) error {
		info, err := rdb.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		return errors.Join(wantField(info, "cluster_known_nodes", strconv.Itoa(len(c.Nodes))), wantField(info, "cluster_state", "ok"))
	})
}

// Options returns new options for a client.
func (c *Cluster) Options() *redis.ClusterOptions {
	options := &redis.ClusterOptions{MaintNotificationsConfig: noNotifications()}
	for _, node := range c.Nodes {
		options.Addrs = append(options.Addrs, node.Addr())
	}
	return options
}

// Client returns a new client, which the caller must close.
func (c *Cluster) Client() *redis.ClusterClient { return redis.NewClusterClient(c.Options()) }
