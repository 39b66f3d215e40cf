package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
)

type queueSet map[string]bool

// unserved is a warning about those of them that no running worker takes jobs
// from or, where none is running, no worker with this config would. It is empty
// if there are none, and if Redis fails: the jobs are safe by then.
func (s queueSet) unserved(rdb redis.UniversalClient, c *config.Config) string {
	by, served := "no worker with this config would take", queueSet{}
	if rdb != nil {
		servers, err := asynq.NewInspectorFromRedisClient(rdb).Servers()
		if err != nil {
			return ""
		}
		for _, server := range servers {
			by = "no running worker takes"
			for queue := range server.Queues {
				served[queue] = true
			}
		}
	}
	if len(served) == 0 {
		for queue := range c.Queues {
			served[queue] = true
		}
	}
	var left []string
	for _, queue := range slices.Sorted(maps.Keys(s)) {
		if !served[queue] {
			left = append(left, queue)
		}
	}
	if len(left) == 0 {
		return ""
	}
	return fmt.Sprintf("%s jobs of queue %s, only of %s: those wait until one does",
		by, strings.Join(left, ", "), strings.Join(slices.Sorted(maps.Keys(served)), ", "))
}
