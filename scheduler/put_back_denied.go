package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/stats"
)

// admitTime is how long jobs are kept from asynq until it is known which of them may run. If rules
// or the limiter take longer, each job occupies its slot meanwhile. If no job was denied recently,
// jobs are not kept: asynq gets them while their requests are under way.
const admitTime = 10 * time.Millisecond

// acquireAll implements admitter. Denied jobs are put back at once, so that hardly any worker meets
// one. Jobs whose request fails here go on to their handler, which reports the error.
func (s *Server) acquireAll(ctx context.Context, l batch) []dequeuedJob {
	jobs := l.jobs
	var all []*acquireRequest
	for i, t := range jobs {
		if q, err := newAcquireRequest(job{Queue: l.Queue, ID: t.id}, t.msg, t.back); err == nil { // else it is asynq's to judge
			q.leaseEnd, q.leaseID = l.LeaseEnd(), l.Lease()
			jobs[i].acquireRequest, all = q, append(all, q)
		}
	}
	if len(all) == 0 {
		return jobs
	}
	s.request(all)
	if !s.requests.deniedRecently() {
		return jobs
	}
	ctx, cancel := context.WithTimeout(ctx, admitTime)
	defer cancel()
	for _, q := range all {
		if q.wait(ctx) != nil {
			break
		}
	}
	return s.putBackDenied(context.WithoutCancel(ctx), l)
}

// newAcquireRequest makes the request of a job from its message. back is whether the job was put
// back since it was enqueued: only then its message can have a queue position.
func newAcquireRequest(j job, msg string, back bool) (*acquireRequest, error) {
	m, err := asynqdb.ParseMessage([]byte(msg))
	if err != nil {
		return nil, err
	}
	task, err := asynqdb.ParseTask([]byte(msg))
	a := attempt{job: j, task: task, retried: m.Retried, maxRetry: m.MaxRetry, isNew: !back && m.FailedAt == 0, jobTimeout: jobTimeoutOf(m)}
	if !a.isNew {
		a.position = queuePositionOf(j, task)
	}
	return &acquireRequest{attempt: a, unique: m.Unique}, err
}

// putBackDenied puts denied jobs back, and returns the others. A job that cannot be put back here
// is put back by its handler.
func (s *Server) putBackDenied(ctx context.Context, l batch) (others []dequeuedJob) {
	var backs []*asynqdb.PutBack
	var parked []dequeuedJob
	for _, t := range l.jobs {
		why, ok := t.denied()
		if !ok {
			others = append(others, t)
			continue
		}
		msg := asynqdb.WithLastError([]byte(t.msg), why.Error())
		back := s.redis.returning(t.job, why, msg, t.unique)
		back.Lease = l.Lease()
		backs, parked = append(backs, back), append(parked, t)
	}
	if len(backs) == 0 {
		return others
	}
	s.db.PutBack(ctx, l.Queue, backs...)
	for i, t := range parked {
		switch err := backs[i].Err; {
		case err == nil:
			s.history.CountEnd(t.name(), stats.PutBack)
		case !errors.Is(err, asynqdb.ErrNotActive): // else it was deleted, or another has it
			others = append(others, t)
		}
	}
	return others
}

// releaseUnused gives up the permits of a job that will not start. Leases are freed; all other
// permits count as used.
func (s *Server) releaseUnused(q *acquireRequest) {
	<-q.done
	if q.decision.Lease > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), freeTimeout)
		defer cancel()
		_ = s.permits.Free(ctx, q.decision.Holder, q.rule.Needs...) // else they end by themselves
	}
}
