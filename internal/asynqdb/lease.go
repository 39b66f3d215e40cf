package asynqdb

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// A LeaseID says which lease of a job is meant. What ends a lease does nothing to a job that
// has another lease by now: go-redis repeats a command whose answer it did not get, and
// meanwhile another worker may have taken the job. A lease is meant if one of the fields fits
// it; the zero LeaseID means any lease.
type LeaseID struct {
	Dequeue string // the name of the dequeue that took the job
	Ended   int64  // a unix second by which the lease had ended
}

// ended is the field as scripts get it.
func (l LeaseID) ended() any {
	if l.Ended == 0 {
		return ""
	}
	return l.Ended
}

// ExtendLeases extends the leases of jobs of a queue until a unix second: of those that have the
// lease of the dequeue that is given for their ID. It returns of how many.
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

// WriteResult keeps the result of a job that has the lease of that dequeue. It returns 0 if the
// job is gone or has another lease.
func (db DB) WriteResult(ctx context.Context, queue, id, dequeue string, result any) (int64, error) {
	return writeResultScript.Run(ctx, db.Redis, []string{Hash(queue, id), Key(queue, Lease)}, id, dequeue, result).Int64()
}

// IsLeases reports whether a key holds the leases of a queue.
func IsLeases(key string) (queue string, ok bool) { return is(key, Lease) }

// IsHash reports whether a key is the hash of a job.
func IsHash(key string) (queue, id string, ok bool) {
	rest, ok := strings.CutPrefix(key, "asynq:{")
	queue, id, is := strings.Cut(rest, "}:t:")
	return queue, id, ok && is
}

// Guards are asynq's scripts that end a lease, with a check in front that the job has the lease
// that is meant. asynq gives a script's text only to a Redis that does not know the script, so
// a caller of such a script is told once that Redis does not know it. The zero value is ready. It is safe for
// concurrent use.
type Guards struct{ bySHA sync.Map } // of *redis.Script, by the SHA-1 of asynq's own text

// NoScript is how Redis says that it does not know a script.
const NoScript = noScript("NOSCRIPT No matching script. Please use EVAL.")

type noScript string

func (e noScript) Error() string { return string(e) }

// RedisError implements redis.Error.
func (noScript) RedisError() {}

// Add makes the guard of a script of asynq's, and returns the SHA-1 of asynq's text.
func (g *Guards) Add(text string) (sha1 string) {
	sha1 = redis.NewScript(text).Hash()
	g.bySHA.LoadOrStore(sha1, redis.NewScript(script.Guard+text))
	return sha1
}

// Known reports whether a script's guard was added.
func (g *Guards) Known(sha1 string) bool {
	_, ok := g.bySHA.Load(sha1)
	return ok
}

// Run runs a script of asynq's, whose guard was added, if the job has that lease. Otherwise the error
// is that of asynq's own scripts for a job that is not active.
func (g *Guards) Run(ctx context.Context, rdb redis.Scripter, sha1 string, c *Call, lease LeaseID, keys []string, args []any) *redis.Cmd {
	guarded, _ := g.bySHA.Load(sha1)
	keys = append(slices.Clip(keys), Key(c.Queue, Active), Key(c.Queue, Lease), Hash(c.Queue, c.ID))
	args = append(slices.Clip(args), lease.Dequeue, lease.ended())
	return guarded.(*redis.Script).Run(ctx, rdb, keys, args...)
}
