package redistest

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// A Cluster is three primaries that share the slots, without replicas.
type Cluster struct {
	Nodes []*Server
}

// StartCluster starts the nodes and waits until each says that the cluster is
// complete. The caller must Close it.
func StartCluster() (*Cluster, error) {
	c := &Cluster{}
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start() error {
	for range 3 {
		node, err := Start("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
		if err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, node)
	}
	for i := range c.Nodes {
		if err := c.join(i); err != nil {
			return err
		}
	}
	for _, node := range c.Nodes {
		if err := node.waitForCluster(len(c.Nodes)); err != nil {
			return err
		}
	}
	return nil
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

// Close ends all nodes.
func (c *Cluster) Close() error { return closeAll(c.Nodes...) }

func closeAll(servers ...*Server) error {
	var errs []error
	for _, s := range servers {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}
