package asynqdb

import (
	"maps"
	"slices"
	"time"
)

// Script is one of asynq's scripts that its server runs.
type Script int

// Those that are recognised.
const (
	Other          Script = iota
	ScriptDequeue         // takes a job from its queue
	ScriptRetry           // writes a job back whose attempt has failed
	ScriptArchive         // the same of one that is given up
	ScriptComplete        // writes a job back that is done, and kept
)

// A Call is one of asynq's scripts as it is sent to Redis. It is told from others by its keys:
// the text of a script, and so its SHA-1, is what asynq changes most easily. What is not
// recognised is to be passed on.
type Call struct {
	Script
	Queue    string
	LeaseEnd int64 // of ScriptDequeue: the unix second at which the job's lease is to end
	// What follows is of the scripts that write a job back.
	ID     string
	Msg    []byte    // the job as it is to be stored: after a failure with its text, and one more retry
	At     time.Time // when the attempt was given up, or the next one is
	Failed bool      // of ScriptRetry: whether one more retry was counted

	stored *any // the argument with the message
}

// SetMsg has the job stored with another message. The arguments of the call change.
func (c *Call) SetMsg(msg []byte) { c.Msg, *c.stored = msg, msg }

// Recognise is what a script of asynq's server with these keys and arguments does.
func Recognise(keys []string, args []any) (c Call) {
	has := func(i int, name string) (ok bool) {
		c.Queue, ok = is(keys[i], name)
		return ok
	}
	switch {
	case len(keys) == 4 && len(args) == 2 && has(1, Paused) && has(0, Pending): // and active, lease
		if end, ok := args[0].(int64); ok {
			c.Script, c.LeaseEnd = ScriptDequeue, end
		}
	case len(keys) >= 8 && len(args) >= 6 && has(1, Active): // the job's hash, active, lease, where it goes
		at, _ := args[2].(int64)
		c.At = time.Unix(at, 0)
		switch {
		case has(3, Retry):
			c.writesBack(ScriptRetry, &args[0], &args[1])
			c.Failed, _ = args[4].(bool)
		case has(3, Archived):
			c.writesBack(ScriptArchive, &args[0], &args[1])
		}
	case len(keys) >= 6 && len(args) >= 4 && has(2, Completed): // active, lease, completed, the job's hash
		c.writesBack(ScriptComplete, &args[0], &args[3])
	}
	return c
}

// writesBack makes it a call that writes a job back, if the arguments are its ID and message.
func (c *Call) writesBack(script Script, id, msg *any) {
	name, isID := (*id).(string)
	if encoded, isMsg := (*msg).([]byte); isID && isMsg {
		c.Script, c.ID, c.Msg, c.stored = script, name, encoded, msg
	}
}

// Fills recognises a script of asynq's client or server that may make jobs of a queue pending,
// such as Enqueue, Forward and Requeue: it has the pending list among its keys.
func Fills(keys []string) (queue string, ok bool) {
	for _, key := range keys {
		if queue, ok = is(key, Pending); ok {
			return queue, true
		}
	}
	return "", false
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
