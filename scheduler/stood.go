package scheduler

import (
	"fmt"
	"strconv"
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
type stood struct{ since, again time.Time }

const stoodHeader = "headgate-stood"

// stoodOf reads a task's header. One that nobody here has written is as good as none.
func stoodOf(task *asynq.Task) stood {
	since, again, _ := strings.Cut(task.Headers()[stoodHeader], " ")
	sinceUS, err1 := strconv.ParseInt(since, 10, 64)
	againUS, err2 := strconv.ParseInt(again, 10, 64)
	if err1 != nil || err2 != nil || sinceUS <= 0 {
		return stood{}
	}
	return stood{time.UnixMicro(sinceUS), time.UnixMicro(againUS)}
}

// in returns an encoded TaskMessage with the header; without one where s is zero.
func (s stood) in(msg []byte) []byte {
	if s.since.IsZero() {
		return msg
	}
	return asynqdb.WithHeader(msg, stoodHeader, fmt.Sprint(s.since.UnixMicro(), s.again.UnixMicro()))
}

// waited is for how long a job has waited that was allowed, since it came again.
func (s stood) waited(d throttle.Decision) time.Duration {
	if s.since.IsZero() {
		return d.Waited
	}
	return min(d.Waited, max(0, d.At.Sub(s.again)))
}
