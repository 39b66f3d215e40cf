package asynqdb

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// Script is the kind of a script that asynq's server runs.
type Script int

// The kinds of scripts that Recognize tells apart.
const (
	Other          Script = iota // any other script
	ScriptDequeue                // takes a job from its queue
	ScriptRetry                  // writes a job whose attempt has failed
	ScriptArchive                // writes a job that has failed for good
	ScriptComplete               // writes a completed job that has a retention
	ScriptDone                   // deletes a completed job that has no retention
)

// A Call is a call of one of asynq's scripts, as asynq sends it to Redis.
type Call struct {
	Script
	Queue string
	// EndsLease reports whether the script ends the lease of the active job ID, as asynq's Done,
	// Retry, Archive and Requeue scripts do.
	EndsLease     bool
	ID            string
	MayAddPending bool  // whether the script may add jobs to the pending list
	IsHeartbeat   bool  // whether the script writes what a server does
	LeaseEnd      int64 // for ScriptDequeue: the Unix second at which the job's lease is to end; else 0

	// The next fields are set for ScriptRetry, ScriptArchive and ScriptComplete. RunGuarded sends
	// the present values of Msg and At.
	Msg    []byte    // the message to store; after a failure it has the new error
	At     time.Time // for ScriptRetry: time of the next attempt; for ScriptArchive: end of the last attempt
	Failed bool      // for ScriptRetry: whether asynq counts the attempt as a failure

	Batch    string     // the job's batch, which RunGuarded and Retain tell how the job ends; empty if none
	BatchEnd BatchState // the state of the job after the script; 0 if the script does not end the job

	keys          []string
	args          []any
	msgArg, atArg int // the indexes of the arguments Msg and At; 0 if there are none
}

// Recognize returns the Call with these keys and arguments. It recognizes scripts by their keys,
// because new versions of asynq change the keys less often than the text.
func Recognize(keys []string, args []any) *Call {
	names := namesOf(keys)
	args = keepArchived(names, args)
	c := &Call{keys: keys, args: args, IsHeartbeat: len(keys) == 2 && IsHeartbeat(keys[0])}
	for i, name := range names {
		if name == Pending || name == Active {
			c.Queue, _ = ParseKey(keys[i])
		}
	}
	c.MayAddPending = slices.Contains(names, Pending)
	if slices.Contains(names, Active) && len(args) > 0 { // asynq's server sends the script for one job
		c.ID, _ = args[0].(string)
		c.EndsLease = slices.Contains(names, HashPrefix+c.ID)
	}
	switch n, m := len(keys), len(args); {
	case n == 4 && m == 2 && names[0] == Pending && names[1] == Paused: // keys: pending, paused, active, lease
		if end, ok := args[0].(int64); ok {
			c.Script, c.LeaseEnd = ScriptDequeue, end
		}
	case !c.EndsLease:
	case n >= 8 && m >= 6 && names[1] == Active && names[3] == Retry: // keys: job hash, active, lease, retry, …
		c.Script, c.msgArg, c.atArg = ScriptRetry, 1, 2
		c.Failed, _ = args[4].(bool)
	case n >= 8 && m >= 6 && names[1] == Active && names[3] == Archived: // keys: job hash, active, lease, archived, …
		c.Script, c.msgArg, c.atArg = ScriptArchive, 1, 2
	case n >= 5 && m == 3 && names[2] == HashPrefix+c.ID && strings.HasPrefix(names[4], "processed"): // keys: active, lease, job hash, processed on the day, processed
		c.Script = ScriptDone
	case n >= 6 && m >= 4 && names[2] == Completed: // keys: active, lease, completed set, job hash
		c.Script, c.msgArg = ScriptComplete, 3
	}
	if c.msgArg > 0 {
		var ok bool
		if c.Msg, ok = args[c.msgArg].([]byte); !ok {
			c.Script, c.msgArg, c.atArg = Other, 0, 0
		}
	}
	if c.atArg > 0 {
		at, _ := args[c.atArg].(int64)
		c.At = time.Unix(at, 0)
	}
	return c
}

// RunGuarded runs a script of asynq's that ends a lease. If the job does not have the lease of j,
// RunGuarded changes nothing, and returns the error of asynq's scripts for a job that is not
// active.
func (c *Call) RunGuarded(ctx context.Context, rdb redis.Scripter, text string, j Job) *redis.Cmd {
	keys := append(slices.Clip(script.WholeSlot(rdb, c.keys)), Key(c.Queue, Active), Key(c.Queue, Lease), Hash(c.Queue, c.ID))
	args, text := slices.Clip(c.args), script.Guard+text
	if c.endsInBatch() {
		args, text = append(args, batchKey(c.Queue, c.Batch), int(c.BatchEnd)), script.BatchHead+text+script.BatchEnd
	}
	args = append(args, j.Dequeue, j.Ended)
	if c.msgArg > 0 {
		args[c.msgArg] = c.Msg
	}
	if c.atArg > 0 {
		args[c.atArg] = c.At.Unix()
	}
	return redis.NewScript(text).Run(ctx, rdb, keys, args...)
}

// WithHeaders returns a copy of the arguments of an enqueue script with headers added to the
// message. In all enqueue scripts the message is the only []byte argument. args stays unchanged,
// because asynq may send args again.
func WithHeaders(args []any, headers map[string]string) []any {
	if len(headers) == 0 {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		msg, is := arg.([]byte)
		if !is {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(headers)) {
			msg = WithHeader(msg, key, headers[key])
		}
		args[i] = msg
	}
	return args
}
