package scheduler

import (
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/words"
	"github.com/headgate/headgate/throttle"
)

// RetryAt is where a job waits that comes again after an attempt: one that failed, or put
// itself back with [RetryAfter]. As text, in config files too, it is one of ticket and back;
// MarshalText and UnmarshalText return an error for any other.
type RetryAt int

// The places. AtTicket is the zero value.
const (
	AtTicket RetryAt = iota // where it stood: before all that came after it
	AtBack                  // behind all that wait
)

var retryPlaces = words.Words{"ticket", "back"}

// String is the place in lower case.
func (r RetryAt) String() string { return retryPlaces.Text(int(r)) }

// MarshalText implements encoding.TextMarshaler.
func (r RetryAt) MarshalText() ([]byte, error) { return retryPlaces.Marshal(int(r)) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *RetryAt) UnmarshalText(text []byte) error { return retryPlaces.Unmarshal(text, (*int)(r)) }

// stood is where a job stood that comes again, in a header of its message: since when in its
// lane, by the limiter's clock, and from when on it was to come again. It is zero before the
// first attempt.
type stood struct {
	since, again time.Time
	// unbegun is whether the job was allowed and has not begun, so that its wait goes on:
	// then again is when that wait began, and denials how often it was denied meanwhile.
	unbegun bool
	denials int
}

const stoodHeader = "headgate-stood"

// stoodOf reads the header of a job's task. One that was not written for that job, such as a
// header that a handler has copied to another task, counts for nothing.
func stoodOf(j job, task *asynq.Task) (s stood) {
	text, name, _ := strings.Cut(task.Headers()[stoodHeader], "\n")
	if name != j.Queue+"\n"+j.ID {
		return stood{}
	}
	var since, again int64
	if _, err := fmt.Sscanf(text, "%d %d %d", &since, &again, &s.denials); err != nil || since <= 0 {
		return stood{}
	}
	s.since, s.again, s.unbegun = time.UnixMicro(since), time.UnixMicro(again), s.denials >= 0
	s.denials = max(0, s.denials)
	return s
}

// in returns a job's encoded TaskMessage with the header; without one if s is zero.
func (s stood) in(j job, msg []byte) []byte {
	if s.since.IsZero() {
		return msg
	}
	denials := s.denials
	if !s.unbegun {
		denials = -1
	}
	return asynqdb.WithHeader(msg, stoodHeader, fmt.Sprintf("%d %d %d\n%s\n%s", s.since.UnixMicro(), s.again.UnixMicro(), denials, j.Queue, j.ID))
}

// told is a decision as the job is told it, which has waited since it came again. A wait that
// goes on counts as one.
func (s stood) told(d throttle.Decision) throttle.Decision {
	switch {
	case !d.OK() || s.since.IsZero():
	case !s.unbegun:
		d.Waited = min(d.Waited, max(0, d.At.Sub(s.again)))
	default:
		if d.Denials += s.denials; d.Denials > 0 {
			d.Waited = max(0, d.At.Sub(s.again))
		}
	}
	return d
}

// unbegun is where a job stands that was allowed and is not begun: it asks anew, and keeps its
// place and its time.
func (a attempt) unbegun(d throttle.Decision) stood {
	s := stood{since: a.stood.since, again: d.At.Add(-d.Waited), unbegun: true, denials: d.Denials}
	if a.stood.unbegun {
		s.again = a.stood.again
	} else if s.since.IsZero() || a.rule.RetryAt == AtBack {
		s.since = s.again
	}
	return s
}
