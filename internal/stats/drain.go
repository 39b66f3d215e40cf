package stats

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/waitdb"
)

// State is what a process does about new jobs.
type State string

// The states of a process.
const (
	StateRunning  State = "running"
	StateDraining State = "draining" // takes no new jobs, and some jobs still run
	StateDrained  State = "drained"  // takes no new jobs, and none runs
	StateStopping State = "stopping" // as StateDraining, and ends then
	StateLost     State = "lost"     // see Process.LastSeen
)

// Name returns the name by which an operator names the process, such as host:1234.
func (p Process) Name() string { return fmt.Sprintf("%s:%d", p.Host, p.PID) }

// Drain orders processes of a scope to take no new jobs. It returns the orders in force by the IDs of the
// processes. An order ends with its process. The processes know it within two seconds, or with their
// next sign of life if the notification gets lost.
func Drain(ctx context.Context, waits *waitdb.DB, processes ...Process) (orders map[string]string, err error) {
	rdb, prefix := waits.Scope()
	var inForce *redis.MapStringStringCmd
	_, err = rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		for _, p := range processes {
			tx.HSetNX(ctx, prefix+"drained", p.ID, uuid.NewString()) // an order that is in force stays, because its operator waits
		}
		tx.PExpire(ctx, prefix+"drained", lostRetention)
		inForce = tx.HGetAll(ctx, prefix+"drained")
		return nil
	})
	if err == nil {
		err = waits.NotifyDrained(ctx)
	}
	return inForce.Val(), err
}

// EndDrain orders processes to take jobs again.
func EndDrain(ctx context.Context, waits *waitdb.DB, processes ...Process) error {
	rdb, prefix := waits.Scope()
	for _, p := range processes {
		if err := rdb.HDel(ctx, prefix+"drained", p.ID).Err(); err != nil {
			return err
		}
	}
	return waits.NotifyDrained(ctx)
}
