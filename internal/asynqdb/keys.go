// Package asynqdb is the only package that depends on asynq's private keys, messages and scripts in
// Redis. TestLayout compares this layout with the pinned version of asynq, and every server runs
// Check when it starts.
//
// A job is a hash, and its ID is in one of its queue's lists or sorted sets: pending, active,
// retry, scheduled, archived, completed. headgate adds six fields to that hash:
//
//   - denied: exists if the job was ever put back: see lua/asynq/include/denied.lua
//   - scope: the scope that denied the job; several limiters can share an asynq Redis
//   - lock_ms: the milliseconds that were left of the job's Unique lock when the job was denied
//   - crashes: the number of forgiven crashes of the job's workers
//   - name: the job's idempotency key
//   - attempts: the ends of the job's last attempts
package asynqdb

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/throttle"
)

// The names of a queue's keys, for Key.
const (
	Pending   = "pending"  // list of job IDs; asynq takes the last ID of the list first
	Active    = "active"   // list of job IDs
	Lease     = "lease"    // zset of active jobs by the Unix second at which their lease ends
	Retry     = "retry"    // zset of jobs by the Unix second of their next attempt
	Archived  = "archived" // zset of jobs by the Unix second at which they were archived
	Completed = "completed"
	Scheduled = "scheduled"
	Groups    = "groups" // set of group names; a group is a zset of jobs: see GroupPrefix
	// AggregationSets is a zset of the keys of groups that a server aggregates, each a zset of jobs.
	AggregationSets = "aggregation_sets"
	Paused          = "paused"          // string; exists while the queue is paused
	Pass            = "headgate_pass"   // added by headgate: exists while a Dequeue's Rest lasts
	Marker          = "headgate"        // added by headgate: zset; idle servers wait until it has a member, the marker
	Walked          = "headgate_walk"   // added by headgate: exists for WalkInterval after the start of a walk through the queue's jobs
	Orders          = "headgate_orders" // added by headgate: string; the server that orders the pending jobs
	Batches         = "headgate_batch:" // added by headgate: begin of the name of a zset: the jobs of a batch, by state: see BatchState
	Shards          = "headgate:shards" // added by headgate: the number of shards that a sharded queue had last
)

// LeaseTime is the time for which asynq takes or extends a lease.
const LeaseTime = 30 * time.Second

// CancelChannel is the Redis channel on which asynq's Inspector cancels running jobs by their ID.
const CancelChannel = "asynq:cancel"

const queues = "asynq:queues" // key of the set of all queue names

// Key returns the key of a queue with that name. If the name is empty, Key returns the prefix of
// all keys of the queue.
func Key(queue, name string) string { return "asynq:{" + queue + "}:" + name }

// ParseKey is the inverse of Key. For the hash of a job, name is HashPrefix and the job's ID. For a
// key that belongs to no queue, queue and name are empty.
func ParseKey(key string) (queue, name string) {
	rest, ok := strings.CutPrefix(key, "asynq:{")
	queue, name, is := strings.Cut(rest, "}:")
	if !ok || !is {
		return "", ""
	}
	return queue, name
}

// ValidateQueue returns an error if no server can serve a queue of that name: line breaks separate the
// parts of lane names, and "}:" separates the queue's name from the rest of a key.
func ValidateQueue(name string) error {
	if strings.Contains(name, "\n") || strings.Contains(name, "}:") {
		return &throttle.FieldError{Field: "queue", Value: strconv.Quote(name), Want: `want a name without line breaks and without "}:"`}
	}
	return nil
}

// IsHeartbeat reports whether asynq's servers write the key at each heartbeat, to say that they live
// and what they do.
func IsHeartbeat(key string) bool {
	return strings.HasPrefix(key, "asynq:servers") || strings.HasPrefix(key, "asynq:workers")
}

// GroupPrefix is the part of the name of a group's zset that precedes the group's name.
const GroupPrefix = "g:"

// HashPrefix is the part of the name of a job's hash that precedes the job's ID.
const HashPrefix = "t:"

// Hash returns the key of a job's hash.
func Hash(queue, id string) string { return Key(queue, HashPrefix) + id }
