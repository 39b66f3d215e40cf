package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/stats"
)

// admitTime is how long jobs are kept from asynq until it is known which may run. Where
// rules or the limiter take longer each job has its slot meanwhile. Where none is denied they
// are not kept at all: the next are taken while these ask.
const admitTime = 10 * time.Millisecond

// admit implements admitter. Jobs that must wait are put back at once, so no worker meets
// them but for the first. What goes wrong here goes on in the job's handler.
func (s *Server) admit(ctx context.Context, l lot) []taken {
	jobs := l.jobs
	var all []*asking
	for i, t := range jobs {
		if q, err := newAsking(job{Queue: l.Queue, ID: t.id}, t.msg, t.back); err == nil { // else it is asynq's to judge
			q.lease, q.leaseID = l.LeaseEnd(), l.Lease()
			jobs[i].asking, all = q, append(all, q)
		}
	}
	if len(all) == 0 {
		return jobs
	}
	s.ask(all)
	if !s.inOrder.deniesLately() {
		return jobs
	}
	ctx, cancel := context.WithTimeout(ctx, admitTime)
	defer cancel()
	for _, q := range all {
		if q.wait(ctx) != nil {
			break
		}
	}
	return s.park(context.WithoutCancel(ctx), l)
}

// newAsking is the question of a job by its message, which may have been put back since it
// was enqueued. Where a job stood is only known of one that was.
func newAsking(j job, msg string, back bool) (*asking, error) {
	m, err := asynqdb.ParseMessage([]byte(msg))
	if err != nil {
		return nil, err
	}
	task, err := asynqdb.ParseTask([]byte(msg))
	a := attempt{job: j, task: task, retried: m.Retried, maxRetry: m.MaxRetry, isNew: !back && m.FailedAt == 0, term: termOf(m)}
	if !a.isNew {
		a.stood = stoodOf(j, task)
	}
	return &asking{attempt: a, unique: m.Unique}, err
}

// park puts jobs back that have been denied, and returns the others. One that cannot be
// put back is put back by its handler.
func (s *Server) park(ctx context.Context, l lot) (others []taken) {
	var backs []*asynqdb.PutBack
	var parked []taken
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
			s.history.Ended(t.name(), stats.PutBack)
		case !errors.Is(err, asynqdb.ErrNotActive): // else it was deleted, or another has it
			others = append(others, t)
		}
	}
	return others
}

// waste gives up permits with which a job will not begin: leases go back, all else counts
// as used.
func (s *Server) waste(q *asking) {
	<-q.answered
	if q.decision.Lease > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), freeTimeout)
		defer cancel()
		_ = s.permits.Free(ctx, q.decision.Holder, q.rule.Needs...) // else they end by themselves
	}
}
