package redistest

import (
	"cmp"
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// A Cluster is three primaries that share the slots, without replicas.
type Cluster struct {
	Nodes []*Server
}

// RunCluster gives a cluster that only this test uses, once each node says that it is
// complete.
func RunCluster(t TB) *Cluster {
	t.Helper()
	c := &Cluster{}
	for range 3 {
		c.Nodes = append(c.Nodes, Run(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
	}
	var err error
	for i := range c.Nodes {
		err = errors.Join(err, c.join(i))
	}
	for _, node := range c.Nodes {
		err = cmp.Or(err, node.waitForCluster(len(c.Nodes)))
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// join gives node i its share of the slots and an epoch of its own, so that the
// nodes need not settle that first, and introduces it to the first node.
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
		meet := rdb.ClusterMeet(ctx, "127.0.0.1", c.Nodes[0].portText())
		err = errors.Join(err, meet.Err())
	}
	return err
}

// Options are what a client of the cluster needs.
func (c *Cluster) Options() *redis.ClusterOptions {
	options := &redis.ClusterOptions{MaintNotificationsConfig: noNotifications()}
	for _, node := range c.Nodes {
		options.Addrs = append(options.Addrs, node.Addr())
	}
	return options
}

// Client connects to the cluster. The caller must close the client.
func (c *Cluster) Client() *redis.ClusterClient { return redis.NewClusterClient(c.Options()) }
