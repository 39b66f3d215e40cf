package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/attempts"
	"github.com/headgate/headgate/lua"
)

// RetryAfter returns an error with which a handler puts its job back for at
// least d: no attempt is spent, and no ErrorHandler hears of it. It is for a handler
// that finds out by itself that it has come too early:
//
//	if resp.StatusCode == http.StatusServiceUnavailable {
//		return scheduler.RetryAfter(time.Minute)
//	}
//
// It may be wrapped; the text of the whole is what asynq shows for the job. With a
// d of zero it comes at once. Else nothing calls the job back before: it comes with
// asynq's own polls, which take whole seconds, so up to a second and a
// DelayedTaskCheckInterval later. Its permits are used up. When it comes it asks for
// them again, where its rule's RetryAt says.
func RetryAfter(d time.Duration) error { return retryAfter(d) }

// retryAfter is the error of [RetryAfter].
type retryAfter time.Duration

// Error is what asynq shows for the job while it is put back.
func (d retryAfter) Error() string { return "retry after " + time.Duration(d).String() }

// PutBackAs returns an error with which a handler puts its job back with another
// payload: the job goes on as if it had been enqueued with that, under the
// permits that it needs then, with its ID, its queue and its options. No attempt
// is spent. It may be wrapped, and comes back as after RetryAfter(0).
func PutBackAs(payload []byte) error { return &putBackAs{payload} }

// putBackAs is the error of [PutBackAs].
type putBackAs struct{ payload []byte }

// Error is what asynq shows for the job while it is put back.
func (*putBackAs) Error() string { return "put back with another payload" }

// IsPutBack reports whether a handler's error puts its job back, by RetryAfter,
// Blocked or PutBackAs, which is no failure. It is for middleware that logs or
// counts failures. Of an error that is several things Blocked and PutBackAs count
// before asynq.SkipRetry and asynq.RevokeTask, and RetryAfter after them. Of Blocked
// it is what the handler wants: without permits and without a time the job fails all
// the same.
func IsPutBack(err error) bool {
	_, later := errors.AsType[retryAfter](err)
	_, blocked := errors.AsType[*blockedError](err)
	_, as := errors.AsType[*putBackAs](err)
	return blocked || as || later && !ends(err)
}

// ends reports whether asynq does not try a job again after an error.
func ends(err error) bool {
	return errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask)
}

// putBackError has asynq keep a job for later, without a failure. Its text is the
// wrapped error's: asynq shows it, and putBacks.find knows the job again by it.
type putBackError struct {
	error
	at     time.Time  // when asynq itself brings it back
	as     *putBackAs // nil keeps the payload
	denied bool       // whether it waits for permits, and so may be promoted before
	since  time.Time  // when it came to its lane first, where it is to stand there again
}

// atOnce reports whether the job is to come back without a wait.
func (e *putBackError) atOnce() bool { return !e.denied && !e.at.After(time.Now()) }

// Error is the wrapped error's text as asynq stores it.
func (e *putBackError) Error() string { return storable(e.error.Error()) }

// Unwrap lets errors.As find what the handler returned.
func (e *putBackError) Unwrap() error { return e.error }

// job names a job in asynq: an ID is unique in its queue only.
type job struct{ queue, id string }

// putBacks are the jobs of this process that asynq is about to write back to
// Redis. asynq archives a job on its last attempt whatever kind of error it
// gets; so the client between asynq and Redis looks here for what is meant.
//
// A job is added when its handler has returned, and removed when it is written
// back.
type putBacks struct{ remembered[*putBackError] }

// find returns what is to become of a job whose attempt ended with an error of
// that text. With another one it failed after all, such as by its timeout: asynq
// does not wait for the handler then, which may say something else later.
func (p *putBacks) find(j job, text string) (*putBackError, bool) {
	err, ok := p.get(j)
	return err, ok && err.Error() == text
}

// uniqueMargin is how much longer than the wait a job's Unique lock holds, so
// that it does not end while the job comes back and runs.
const uniqueMargin = time.Minute

// putBack writes a job back that waits for permits, or for a moment of its
// handler's choice. One that is to come at once is moved on as if it had been
// called; whatever comes between, it is due for asynq's next poll.
//
// The answer is the one that asynq expects of its own script, NOT FOUND included:
// if the job is not active any more, asynq's recoverer or an operator has it.
// Where Redis does not answer, asynq repeats the call until the job's lease ends, and
// then recovery does it, which says of which lease: so the job is forgotten here only
// when it was written.
func (q *queueRedis) putBack(ctx context.Context, w writeBack, why *putBackError, ends string) *redis.Cmd {
	if !why.since.IsZero() {
		_ = attempts.Stood(ctx, q.UniversalClient, w.hash, stood{why.since, why.at}.String())
	}
	call := q.putBackCall(w, why, ends)
	cmd := redis.NewCmd(ctx)
	if q.sendPutBacks(ctx, call); call.err != nil {
		cmd.SetErr(call.err)
		return cmd
	}
	cmd.SetVal("OK")
	q.putBacks.remove(w.job)
	if why.atOnce() && q.promotes.Load() {
		_, _ = promoter{q.UniversalClient}.promote(ctx, []job{w.job})
	}
	return cmd
}

// putBackCall is how a job is put back.
func (q *queueRedis) putBackCall(w writeBack, why *putBackError, ends string) *putBackCall {
	scope := ""
	if why.denied || why.atOnce() && q.promotes.Load() {
		scope = q.scope
	}
	msg := w.msg
	if why.as != nil {
		msg = withPayload(msg, why.as.payload)
	}
	return &putBackCall{writeBack: w, args: []any{w.id, msg, unixCeil(why.at), w.uniqueSeconds(why.at), scope, ends}}
}

// putBackCall is a job that is put back together with others.
type putBackCall struct {
	writeBack
	args []any // as lua/asynq/put_back.lua takes them
	err  error
}

// errNotActive is what asynq's own script says of a job that is not active.
var errNotActive = errors.New("NOT FOUND")

// sendPutBacks puts jobs of one queue back in one script.
func (q *queueRedis) sendPutBacks(ctx context.Context, calls ...*putBackCall) {
	prefix := queuePrefix(calls[0].queue)
	keys, args := []string{prefix + "active", prefix + "lease", prefix + "retry"}, []any(nil)
	for _, c := range calls {
		keys, args = append(keys, c.hash), append(args, c.args...)
	}
	done, err := lua.PutBack.Run(ctx, q.UniversalClient, keys, args...).Int64Slice()
	for i, c := range calls {
		if c.err = err; err == nil && done[i] == 0 {
			c.err = errNotActive
		}
	}
}

// unixCeil is a moment as asynq's scores are: whole seconds, and not before it.
// asynq itself rounds down, so that a job comes back up to a second early.
func unixCeil(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

// uniqueSeconds is how long the job's Unique lock, if it has one, must hold if it
// comes back at t.
func (w writeBack) uniqueSeconds(t time.Time) int64 {
	if !w.unique {
		return 0
	}
	return int64((time.Until(t) + uniqueMargin) / time.Second)
}
