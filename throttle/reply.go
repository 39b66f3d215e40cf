package throttle

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Decide asks for the reply of a script that decides as lua/limits/allow.lua does, and
// whose leases are in it, and makes a decision of it. Where that says that a calendar
// ends, it extends the calendar and asks again; where it says that Redis lost a limit, it
// defines the limits again and asks once more. Neither has taken anything, so to ask
// again is safe. Three tries are enough for one of each; what needs more is in a race with
// somebody who changes the limit all the time.
//
// It is for scripts of other packages, such as those of scheduler/lanes.
func (r *Redis) Decide(
	ctx context.Context, needs []Need, ask func(context.Context) (reply []any, holder string, err error),
) (Decision, error) {
	for range 3 {
		reply, holder, err := ask(ctx)
		if err != nil {
			return Decision{}, unavailable(err)
		}
		switch outcome := reply[0].(int64); {
		case outcome == int64(NoLimit) && reply[3].(int64) == 1:
			again, err := r.defineAgain(ctx, needs[reply[1].(int64)].Limit)
			if err != nil {
				return Decision{}, err
			}
			if again {
				continue
			}
			fallthrough
		case outcome != stale:
			return decision(reply, needs, holder), nil
		}
		names := strings.Fields(reply[1].(string))
		if err := r.ExtendCalendars(ctx, names, reply[2].(int64)); err != nil {
			return Decision{}, err
		}
	}
	return Decision{}, errCalendar
}

// errCalendar is the error where others change a limit each time that its
// calendar has been extended.
var errCalendar = fmt.Errorf("%w: the calendar of a limit changes faster than it can be stored", ErrUnavailable)

// stale is the scripts' own outcome, past the last of Outcome: a calendar must be
// extended first.
const stale = 6

// decision reads a script's reply: outcome, index of the need that decided, now,
// ready at, remaining, full at, capacity, and the lease or how long to put the job
// back for. Moments are microseconds of Redis's clock, and become lengths of time
// here, so that this process's clock does not matter.
//
// What follows depends on the outcome: of a job that waits, whether anybody knows when
// it will run; of an allowed call, whether the limiter is to hear how it goes, the mark
// of each need, and of a job that waited since when, how often it was denied, and since
// when its permits were reserved or 0. Allow's denials end
// before that, and those that are Never or NoLimit sooner.
func decision(reply []any, needs []Need, holder string) Decision {
	n := make([]int64, max(9, len(reply)))
	for i := range reply {
		n[i] = reply[i].(int64)
	}
	need := needs[n[1]]
	d := Decision{
		Outcome: Outcome(n[0]), Limit: need.Limit, Key: need.Key, Cost: need.Cost,
		At: time.UnixMicro(n[2]), Remaining: int(n[4]), Capacity: int(n[6]),
	}
	if d.Outcome == NoLimit {
		d.ForOthers = n[3] == 2
		return d
	}
	if d.Outcome == Denied {
		d.RetryAfter, d.PutBack = microseconds(max(0, n[3]-n[2])), microseconds(n[7])
		d.Unknown = len(reply) > 8 && n[8] == 0
	}
	if d.Outcome == Allowed {
		d.BeginIn = microseconds(max(0, n[3]-n[2]))
	}
	if d.Outcome == Allowed && len(reply) > 8 {
		after := 9 + 2*len(needs)
		d.Heard, d.Taken = n[8] == 1, taken(n[9:after], needs)
		if waited := n[after:]; len(waited) > 0 {
			d.Waited, d.Denials = microseconds(n[2]-waited[0]), int(waited[1])
			if d.Late = -1; waited[2] > 0 {
				d.Late = microseconds(n[2] - waited[2])
			}
		}
	}
	if d.Outcome != Denied && n[7] > 0 {
		d.Holder, d.Lease = holder, microseconds(n[7])
	}
	if n[5] > 0 {
		d.ResetAfter = microseconds(max(0, n[5]-n[2]))
	}
	return d
}
