// Package asynqdb is the only package that depends on how asynq stores its jobs in Redis, which
// asynq calls private: its keys, messages and scripts. The version of asynq is pinned. TestLayout
// compares the layout with asynq's own client, server and inspector, and every server runs Check
// when it starts.
//
// A job is a hash, and its ID is in one of its queue's lists or sorted sets: pending, active,
// retry, scheduled, archived, completed. headgate adds six fields to that hash:
//
//   - denied: exists if the job was ever put back. While the job is denied, it is the job's retry
//     time, equal to its score in the retry set. After the grant it is a mark, and in other cases
//     empty. A job in the retry set with another score has failed
//   - scope: the scope that denied the job; several limiters can share an asynq Redis
//   - lock_ms: the milliseconds that were left of the job's Unique lock when the job was denied
//   - crashes: the number of forgiven crashes of the job's workers
//   - name: the job's idempotency key
//   - attempts: the ends of the job's last attempts
package asynqdb

import (
	"strings"
	"time"
)

// The names of a queue's keys, for Key.
const (
	Pending   = "pending"  // list of IDs; asynq takes the last one next
	Active    = "active"   // list
	Lease     = "lease"    // zset of active jobs by the Unix second at which their lease ends
	Retry     = "retry"    // zset by the Unix second of their next attempt
	Archived  = "archived" // zset by when they were archived
	Completed = "completed"
	Scheduled = "scheduled"
	Paused    = "paused"          // exists if the queue is paused
	Pass      = "headgate_pass"   // added by headgate: exists while a Dequeue's Rest lasts
	Marker    = "headgate"        // added by headgate: zset; idle servers wait until it has a member, the marker
	Shards    = "headgate:shards" // added by headgate: the number of shards that a sharded queue had last
)

// LeaseTime is how long a lease lasts unless it is extended, as in asynq's code.
const LeaseTime = 30 * time.Second

const queues = "asynq:queues" // set of names

// Key returns one of a queue's keys. Without a name it is the beginning of all of them.
func Key(queue, name string) string { return "asynq:{" + queue + "}:" + name }

// ParseKey is the inverse of Key. The name of a job's hash is HashPrefix and its ID. For a key that
// belongs to no queue both are empty.
func ParseKey(key string) (queue, name string) {
	rest, ok := strings.CutPrefix(key, "asynq:{")
	queue, name, is := strings.Cut(rest, "}:")
	if !ok || !is {
		return "", ""
	}
	return queue, name
}

// HashPrefix is what the name of a job's hash begins with, before the ID.
const HashPrefix = "t:"

// Hash returns the key of a job.
func Hash(queue, id string) string { return Key(queue, HashPrefix) + id }
