package asynqdb

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// A LeaseID identifies one lease of a job, so that a repeated command cannot end the lease of
// another worker. Exactly one field is set, and must match the lease. The zero LeaseID matches any
// lease.
type LeaseID struct {
	Dequeue string // name of the Dequeue that took the job
	Ended   int64  // Unix second at or before which the lease ended
}

// ended returns the field Ended as an argument of a script: an empty text if the field is not set.
func (l LeaseID) ended() any {
	if l.Ended == 0 {
		return ""
	}
	return l.Ended
}

// ExtendLeases extends the leases of jobs of a queue to the Unix second until. dequeues maps each
// job's ID to the name of the Dequeue that took it. It returns the number of extended leases.
func (db DB) ExtendLeases(ctx context.Context, queue string, until int64, dequeues map[string]string) (int64, error) {
	keys, args := []string{Key(queue, Lease)}, []any{until}
	for id, dequeue := range dequeues {
		keys, args = append(keys, Hash(queue, id)), append(args, id, dequeue)
	}
	if len(dequeues) == 0 {
		return 0, nil
	}
	return extendLeaseScript.Run(ctx, db.Redis, keys, args...).Int64()
}

// WriteResult stores the result of a job if the Dequeue with the name dequeue took the job. It
// returns 1, or 0 if the job is gone or has another lease.
func (db DB) WriteResult(ctx context.Context, queue, id, dequeue string, result any) (int64, error) {
	return writeResultScript.Run(ctx, db.Redis, []string{Hash(queue, id), Key(queue, Lease)}, id, dequeue, result).Int64()
}

// Guards holds those of asynq's scripts that end a lease, each with a check of the lease in front.
// The caller must answer the first call of each script with NoScript, because only then asynq sends
// the text. The zero Guards is empty and ready for use. Guards is safe for concurrent use.
type Guards struct{ bySHA sync.Map } // *redis.Script with the check, by the SHA-1 of asynq's own text

// NoScript is the error of Redis for a script that it does not know.
const NoScript = noScript("NOSCRIPT No matching script. Please use EVAL.")

type noScript string

func (e noScript) Error() string { return string(e) }

// RedisError implements redis.Error.
func (noScript) RedisError() {}

// Add stores the guarded version of one of asynq's scripts, and returns the SHA-1 of asynq's text.
func (g *Guards) Add(text string) (sha1 string) {
	sha1 = redis.NewScript(text).Hash()
	g.bySHA.LoadOrStore(sha1, redis.NewScript(script.Guard+text))
	return sha1
}

// Known reports whether Add was called for a script.
func (g *Guards) Known(sha1 string) bool {
	_, ok := g.bySHA.Load(sha1)
	return ok
}

// Run runs the guarded version of a script that Add has stored. If the job of c does not have the
// given lease, the script changes nothing. It then returns the same error as asynq's own scripts
// for a job that is not active.
func (g *Guards) Run(ctx context.Context, rdb redis.Scripter, sha1 string, c *Call, lease LeaseID, keys []string, args []any) *redis.Cmd {
	guarded, _ := g.bySHA.Load(sha1)
	keys = append(slices.Clip(script.WholeSlot(rdb, keys)), Key(c.Queue, Active), Key(c.Queue, Lease), Hash(c.Queue, c.ID))
	args = append(slices.Clip(args), lease.Dequeue, lease.ended())
	return guarded.(*redis.Script).Run(ctx, rdb, keys, args...)
}
