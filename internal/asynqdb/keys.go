// Package asynqdb is how asynq keeps its jobs in Redis, which asynq calls private: its keys,
// its messages, its scripts, and what ours do beside them. Nothing else knows that. The
// version of asynq is pinned, TestLayout holds all of this against that version's own client,
// server and inspector, and every server tries it when it starts: see Check.
//
// A job is a hash, and its ID stands in one of its queue's lists or sorted sets: pending,
// active, retry, scheduled, archived, completed. Six fields of that hash are ours:
//
//   - denied: until when it was put back to wait for permits, or that it was called. It tells a
//     job that waits for permits from one that failed and waits for its retry in the same set
//   - scope: whose permits those are; several limiters can share an asynq Redis
//   - lock_ms: what was left of its Unique lock when it was denied
//   - crashes: how often its worker died, which was forgiven
//   - name: its idempotency key
//   - attempts: how its last attempts ended
package asynqdb

import (
	"strings"
	"time"
)

// What belongs to a queue, for Key.
const (
	Pending   = "pending"  // list of IDs; the next is the last
	Active    = "active"   // list
	Lease     = "lease"    // zset of active jobs by the unix second at which their lease ends
	Retry     = "retry"    // zset by the unix second of their next attempt
	Archived  = "archived" // zset by when they were archived
	Completed = "completed"
	Scheduled = "scheduled"
	Paused    = "paused" // exists where it is
	// Bell is ours: where servers that found the queue empty wait for a mark.
	Bell = "headgate"
)

// LeaseTime is how long a lease lasts that nobody extends. It stands in asynq's code.
const LeaseTime = 30 * time.Second

const queues = "asynq:queues" // set of names

// Key is one of a queue's keys. Without a name it is what all of them begin with.
func Key(queue, name string) string { return "asynq:{" + queue + "}:" + name }

// Hash is the key of a job.
func Hash(queue, id string) string { return Key(queue, "t:") + id }

// is reports of which queue a key is, if it is one of that name.
func is(key, name string) (queue string, ok bool) {
	queue, isName := strings.CutSuffix(key, "}:"+name)
	queue, isQueue := strings.CutPrefix(queue, "asynq:{")
	return queue, isName && isQueue
}
