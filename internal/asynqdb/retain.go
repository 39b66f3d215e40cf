package asynqdb

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

var retainScript = script.New("asynq/retain")

// Retain writes a completed job in place of c, a ScriptDone: the job is kept for some time, as if it
// had that retention. msg is the job's message. If the job does not have the lease of j, Retain
// changes nothing, and returns the error of asynq's scripts for a job that is not active.
func (c *Call) Retain(ctx context.Context, rdb redis.Scripter, j Job, msg []byte, kept time.Duration) *redis.Cmd {
	seconds := int64(max(kept, time.Second) / time.Second)
	now := time.Now().Unix()
	msg = with(with(msg, "retention", seconds), "completed_at", now)
	keys := append([]string{Key(c.Queue, Completed)}, c.keys...)
	dayKept, _ := c.args[1].(int64) // asynq's script takes a Unix second
	args := []any{c.ID, max(1, dayKept-now), c.args[2], now + seconds, msg, j.Dequeue, j.Ended, ""}
	if c.endsInBatch() {
		args[len(args)-1] = batchKey(c.Queue, c.Batch)
	}
	return retainScript.Run(ctx, rdb, keys, args...)
}
