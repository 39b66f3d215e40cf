package cli

import (
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/expression"
	"github.com/headgate/headgate/scheduler"
)

// Rule is the rule of a filled job. The error is the one with which a worker
// would archive it.
func (j Job) Rule(c *config.Config) (scheduler.Rule, error) {
	return c.Rule(&expression.Job{Type: j.Type, Queue: j.Queue, ID: j.ID, Payload: j.Payload})
}
