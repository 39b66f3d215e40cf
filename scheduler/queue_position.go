package scheduler

import (
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
)

// queuePosition is stored in a header of a job's message, so that the next attempt keeps the job's
// position. Before the first attempt the queuePosition is zero.
type queuePosition struct {
	queuedAt   time.Time // when the job first joined its lane, by the limiter's clock
	retryAt    time.Time // the end of the backoff; if notStarted, when the wait began
	notStarted bool      // whether the job was allowed and did not start, so that its wait goes on
	denials    int       // if notStarted, the number of denials since retryAt
}

const queuePositionHeader = "headgate-position"

// queuePositionOf reads the header of a job's task.
func queuePositionOf(j job, task *asynq.Task) (p queuePosition) {
	var queued, retry int64
	if _, err := fmt.Sscanf(asynqdb.JobHeader(j, task.Headers(), queuePositionHeader), "%d %d %d", &queued, &retry, &p.denials); err != nil || queued <= 0 {
		return queuePosition{}
	}
	p.queuedAt, p.retryAt, p.notStarted = time.UnixMicro(queued), time.UnixMicro(retry), p.denials >= 0
	p.denials = max(0, p.denials)
	return p
}

// writeTo returns a job's encoded message with the header. If p is zero, writeTo returns msg
// unchanged.
func (p queuePosition) writeTo(j job, msg []byte) []byte {
	if p.queuedAt.IsZero() {
		return msg
	}
	denials := p.denials
	if !p.notStarted {
		denials = -1
	}
	return asynqdb.WithJobHeader(j, msg, queuePositionHeader, fmt.Sprintf("%d %d %d", p.queuedAt.UnixMicro(), p.retryAt.UnixMicro(), denials))
}

// nextPosition returns the position of a job that has not started and requests permits again. If
// the job was allowed, it keeps its position and its waiting time. If it was not, the result is
// zero.
func (a *attempt) nextPosition() queuePosition {
	if !a.isDone() || !a.decision.OK() {
		return queuePosition{}
	}
	d := a.decision
	p := queuePosition{queuedAt: a.position.queuedAt, retryAt: d.At.Add(-d.Waited), notStarted: true, denials: d.Denials}
	if a.position.notStarted {
		p.retryAt = a.position.retryAt
	} else if p.queuedAt.IsZero() || a.rule.RetryPosition == PositionBack {
		p.queuedAt = p.retryAt
	}
	return p
}
