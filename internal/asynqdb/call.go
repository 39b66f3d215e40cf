package asynqdb

import (
	"maps"
	"slices"
	"time"
)

// Script is one of asynq's scripts that its server runs.
type Script int

// The scripts that are recognized.
const (
	Other          Script = iota
	ScriptDequeue         // takes a job from its queue
	ScriptRetry           // writes a job whose attempt has failed
	ScriptArchive         // writes a job that has failed for good
	ScriptComplete        // writes a job that is done, and kept
)

// A Call is one of asynq's scripts as it is sent to Redis. It is recognized by its keys, because the
// text of a script, and so its SHA-1, is what asynq changes most easily.
type Call struct {
	Script
	Queue string
	// EndsLease is whether the script takes an active job from its worker, like Done, Retry, Archive
	// and Requeue; ID is the job's.
	EndsLease bool
	ID        string
	Fills     bool  // whether the script may make jobs pending, like Enqueue, Forward and Requeue
	LeaseEnd  int64 // of ScriptDequeue: the Unix second at which the job's lease is to end

	// These are of the scripts that write a job.
	Msg    []byte    // the job as it is to be stored: after a failure with its text, and one more retry
	At     time.Time // when the attempt was given up, or when the next one is
	Failed bool      // of ScriptRetry: whether one more retry was counted

	storedMsg, storedAt *any // the arguments
}

// SetMsg changes the message that the call stores.
func (c *Call) SetMsg(msg []byte) { c.Msg, *c.storedMsg = msg, msg }

// SetAt changes when the next attempt is, of ScriptRetry.
func (c *Call) SetAt(at time.Time) { c.At, *c.storedAt = at, at.Unix() }

// Recognize returns what a script with these keys and arguments does.
func Recognize(keys []string, args []any) *Call {
	c := &Call{}
	active := false
	for _, key := range keys {
		if queue, ok := is(key, Pending); ok {
			c.Queue, c.Fills = queue, true
		} else if queue, ok := is(key, Active); ok {
			c.Queue, active = queue, true
		}
	}
	if active && len(args) > 0 { // one of the server's
		c.ID, _ = args[0].(string)
		c.EndsLease = slices.Contains(keys, Hash(c.Queue, c.ID))
	}
	has := func(i int, name string) bool { _, ok := is(keys[i], name); return ok }
	switch {
	case len(keys) == 4 && len(args) == 2 && has(1, Paused) && has(0, Pending): // and active, lease
		if end, ok := args[0].(int64); ok {
			c.Script, c.LeaseEnd = ScriptDequeue, end
		}
	case !c.EndsLease:
	case len(keys) >= 8 && len(args) >= 6 && has(1, Active): // the job's hash, active, lease, where it goes
		at, _ := args[2].(int64)
		c.At, c.storedAt = time.Unix(at, 0), &args[2]
		if has(3, Retry) {
			c.writes(ScriptRetry, &args[1])
			c.Failed, _ = args[4].(bool)
		} else if has(3, Archived) {
			c.writes(ScriptArchive, &args[1])
		}
	case len(keys) >= 6 && len(args) >= 4 && has(2, Completed): // active, lease, completed, the job's hash
		c.writes(ScriptComplete, &args[3])
	}
	return c
}

// writes makes it a call that writes a job, if the argument is a message.
func (c *Call) writes(script Script, msg *any) {
	if encoded, ok := (*msg).([]byte); ok {
		c.Script, c.Msg, c.storedMsg = script, encoded, msg
	}
}

// WithHeaders puts headers into the message among the arguments of a script: in all of
// asynq's scripts that enqueue the only one of bytes. It changes a copy: go-redis may be asked
// twice with the same arguments, by EvalSha and then by Eval, and each must get the
// message once with each header.
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
