package asynqdb

import (
	"maps"
	"slices"
	"time"
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
)

// A Call is a call of one of asynq's scripts, as asynq sends it to Redis. Recognize uses the keys
// of the call, because new versions of asynq change the text of a script, and so its SHA-1, more
// often.
type Call struct {
	Script
	Queue string
	// EndsLease reports whether the script ends the lease of the active job ID, as asynq's Done,
	// Retry, Archive and Requeue scripts do.
	EndsLease     bool
	ID            string
	MayAddPending bool  // whether the script may add jobs to the pending list
	LeaseEnd      int64 // for ScriptDequeue: the Unix second at which the job's lease is to end; else 0

	// The next fields are set for ScriptRetry, ScriptArchive and ScriptComplete.
	Msg    []byte    // the message to store; after a failure it includes that failure
	At     time.Time // for ScriptRetry: time of the next attempt; for ScriptArchive: end of the last attempt
	Failed bool      // for ScriptRetry: whether asynq counts the attempt as a failure

	storedMsg, storedAt *any // the arguments that Msg and At come from
}

// SetMsg changes the message that the call stores.
func (c *Call) SetMsg(msg []byte) { c.Msg, *c.storedMsg = msg, msg }

// SetAt changes the time of the next attempt. The call must be a ScriptRetry.
func (c *Call) SetAt(at time.Time) { c.At, *c.storedAt = at, at.Unix() }

// Recognize returns the Call with these keys and arguments. SetMsg and SetAt then change args.
func Recognize(keys []string, args []any) *Call {
	c := &Call{}
	active := false
	for _, key := range keys {
		switch queue, name := ParseKey(key); name {
		case Pending:
			c.Queue, c.MayAddPending = queue, true
		case Active:
			c.Queue, active = queue, true
		}
	}
	if active && len(args) > 0 { // asynq's server sends the script for one job
		c.ID, _ = args[0].(string)
		c.EndsLease = slices.Contains(keys, Hash(c.Queue, c.ID))
	}
	has := func(i int, want string) bool { _, name := ParseKey(keys[i]); return name == want }
	switch {
	case len(keys) == 4 && len(args) == 2 && has(1, Paused) && has(0, Pending): // keys: pending, paused, active, lease
		if end, ok := args[0].(int64); ok {
			c.Script, c.LeaseEnd = ScriptDequeue, end
		}
	case !c.EndsLease:
	case len(keys) >= 8 && len(args) >= 6 && has(1, Active): // keys: job hash, active, lease, retry or archived, …
		at, _ := args[2].(int64)
		c.At, c.storedAt = time.Unix(at, 0), &args[2]
		if has(3, Retry) {
			c.setMessage(ScriptRetry, &args[1])
			c.Failed, _ = args[4].(bool)
		} else if has(3, Archived) {
			c.setMessage(ScriptArchive, &args[1])
		}
	case len(keys) >= 6 && len(args) >= 4 && has(2, Completed): // keys: active, lease, completed set, job hash
		c.setMessage(ScriptComplete, &args[3])
	}
	return c
}

// setMessage sets the script and the message of c if the argument msg is an encoded message.
func (c *Call) setMessage(script Script, msg *any) {
	if encoded, ok := (*msg).([]byte); ok {
		c.Script, c.Msg, c.storedMsg = script, encoded, msg
	}
}

// WithHeaders returns a copy of the arguments of an enqueue script with headers added to the
// message. In all enqueue scripts the message is the only []byte argument. The arguments themselves
// stay unchanged, because asynq may send them twice, with EvalSha and then with Eval.
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
