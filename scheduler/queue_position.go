package scheduler

import (
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/enum"
	"github.com/headgate/headgate/throttle"
)

// RetryPosition is where a job waits that comes again after an attempt that failed, or that put the
// job back with [RetryAfter]. As text, in config files too, it is keep or back; MarshalText and
// UnmarshalText return an error for any other value.
type RetryPosition int

// The positions. PositionKeep is the zero value.
const (
	PositionKeep RetryPosition = iota // before all jobs that joined the lane later
	PositionBack                      // behind all waiting jobs
)

var retryPositions = enum.Names{"keep", "back"}

// String is the place in lower case.
func (r RetryPosition) String() string { return retryPositions.Text(int(r)) }

// MarshalText implements encoding.TextMarshaler.
func (r RetryPosition) MarshalText() ([]byte, error) { return retryPositions.Marshal(int(r)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *RetryPosition) UnmarshalText(text []byte) error {
	return retryPositions.Unmarshal(text, (*int)(r))
}

// queuePosition is stored in a header of a job's message, so that a job that comes again keeps its
// position: queuedAt is when the job first joined its lane, by the limiter's clock, and retryAt
// when its backoff ends. It is zero before the first attempt.
type queuePosition struct {
	queuedAt, retryAt time.Time
	// notStarted is whether the job was allowed and has not started, so that its wait goes on. Then
	// retryAt is when the wait began, and denials how often the job was denied during that wait.
	notStarted bool
	denials    int
}

const queuePositionHeader = "headgate-stood"

// queuePositionOf reads the header of a job's task. A header that was written for another job, for
// example one that a handler has copied to a new task, does not count.
func queuePositionOf(j job, task *asynq.Task) (s queuePosition) {
	text, name, _ := strings.Cut(task.Headers()[queuePositionHeader], "\n")
	if name != j.Queue+"\n"+j.ID {
		return queuePosition{}
	}
	var since, again int64
	if _, err := fmt.Sscanf(text, "%d %d %d", &since, &again, &s.denials); err != nil || since <= 0 {
		return queuePosition{}
	}
	s.queuedAt, s.retryAt, s.notStarted = time.UnixMicro(since), time.UnixMicro(again), s.denials >= 0
	s.denials = max(0, s.denials)
	return s
}

// writeTo returns a job's encoded message with the header. A zero position changes nothing.
func (s queuePosition) writeTo(j job, msg []byte) []byte {
	if s.queuedAt.IsZero() {
		return msg
	}
	denials := s.denials
	if !s.notStarted {
		denials = -1
	}
	return asynqdb.WithHeader(msg, queuePositionHeader, fmt.Sprintf("%d %d %d\n%s\n%s", s.queuedAt.UnixMicro(), s.retryAt.UnixMicro(), denials, j.Queue, j.ID))
}

// adjust returns the decision as the handler sees it: Waited is counted since the job came again.
func (s queuePosition) adjust(d throttle.Decision) throttle.Decision {
	switch {
	case !d.OK() || s.queuedAt.IsZero():
	case !s.notStarted:
		d.Waited = min(d.Waited, max(0, d.At.Sub(s.retryAt)))
	default:
		if d.Denials += s.denials; d.Denials > 0 {
			d.Waited = max(0, d.At.Sub(s.retryAt))
		}
	}
	return d
}

// notStarted is the position of a job that was allowed and did not start: the job requests permits
// anew, and keeps its position and its waiting time.
func (a attempt) notStarted(d throttle.Decision) queuePosition {
	s := queuePosition{queuedAt: a.position.queuedAt, retryAt: d.At.Add(-d.Waited), notStarted: true, denials: d.Denials}
	if a.position.notStarted {
		s.retryAt = a.position.retryAt
	} else if s.queuedAt.IsZero() || a.rule.RetryPosition == PositionBack {
		s.queuedAt = s.retryAt
	}
	return s
}
