package scheduler

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

const (
	// ahead is how long before its permit exists a job's call may be known.
	// Many calls cost Redis little more than one; but what changes meanwhile,
	// such as a pause, can cost those jobs a second denial.
	ahead = 40 * time.Millisecond
	// maxSleep bounds what a lost wake-up can cost.
	maxSleep = 5 * time.Second
	// standby is how much later than the process that pumps the others ask.
	standby = 200 * time.Millisecond
	// underwayFor is how long a called job's handler may take to return from
	// its denial before the job is left to asynq's own polls.
	underwayFor = 5 * time.Second
	// minGrant is how long permits are kept for a called job that has not come:
	// as long as the polls of its queue may take, and no longer than a job that
	// nobody takes should hold up others.
	minGrant = 250 * time.Millisecond
	// pumpInterval is the least time between two rounds of calling jobs back.
	pumpInterval = 5 * time.Millisecond
)

// pump calls waiting jobs back as their permits appear. It sleeps until the
// next permit appears, or somebody says that one appears sooner. Every process
// runs one; Redis lets one of them work.
func (s *Server) pump(ctx context.Context) {
	if err := s.checkPromote(ctx); err != nil {
		return
	}
	wakes := s.limiter.Wakes(ctx)
	defer wakes.Close()
	messages := wakes.ChannelWithSubscriptions()
	var calls []call
	var ask time.Time
	for ctx.Err() == nil {
		if !time.Now().Before(ask) {
			var fresh []call
			fresh, ask = s.ask(ctx)
			calls = append(calls, fresh...)
		}
		calls = s.callBack(ctx, calls)
		next := ask
		for _, c := range calls {
			if c.at.Before(next) {
				next = c.at
			}
		}
		ask = sleep(ctx, messages, next, ask, pumpInterval)
	}
}

// call is a job to be called back, and when its permits exist.
type call struct {
	throttle.Called
	at time.Time
}

// ask finds out which jobs to call back, and when to ask again.
func (s *Server) ask(ctx context.Context) ([]call, time.Time) {
	began := time.Now()
	called, next, active, err := s.limiter.Pump(ctx, s.process, s.grant, ahead)
	s.noteLimiter(ctx, began, err)
	switch {
	case err != nil:
		next = time.Second
	case next < 0 || next > maxSleep:
		next = maxSleep
	case !active:
		next += standby
	}
	now := time.Now()
	if !s.promotes.Load() {
		return nil, now.Add(next)
	}
	calls := make([]call, len(called))
	for i, c := range called {
		calls[i] = call{c, now.Add(c.In)}
	}
	return calls, now.Add(next)
}

// checkPromote turns promoting off if asynq's layout is another than it knows.
// It waits for as long as Redis cannot be asked.
func (s *Server) checkPromote(ctx context.Context) error {
	for s.promotes.Load() {
		began := time.Now()
		err := s.promoter.check(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errLayout) {
			s.promotes.Store(false)
			s.log.Warn("denied jobs are left to asynq's own polls and come late", "reason", err)
			return nil
		}
		s.queueOutage.note(ctx, began, unreachable(err))
		pause := time.Now().Add(time.Second)
		sleep(ctx, nil, pause, pause, 0)
	}
	return ctx.Err()
}

// callBack promotes the jobs whose permits exist and returns those it must try
// later: those whose time has not come, and those whose handlers have not
// returned from the denial. What will never come is forgotten, so that its
// permit goes to the next at once.
func (s *Server) callBack(ctx context.Context, calls []call) (later []call) {
	now := time.Now()
	var due []job
	var since []time.Time
	for _, c := range calls {
		if c.at.After(now) {
			later = append(later, c)
		} else {
			due, since = append(due, job{c.Queue, c.ID}), append(since, c.at)
		}
	}
	if len(due) == 0 {
		return later
	}
	fates, err := s.promoter.promote(ctx, due)
	s.queueOutage.note(ctx, now, unreachable(err))
	var lost []string
	var underway []call
	for i, fate := range fates {
		switch fate {
		case fateDone, fateGone:
			lost = append(lost, due[i].id)
		case fateActive, fateUnknown:
			if now.Sub(since[i]) < underwayFor {
				underway = append(underway, call{throttle.Called{Queue: due[i].queue, ID: due[i].id}, since[i]})
			}
		}
	}
	if len(lost) > 0 {
		began := time.Now()
		s.noteLimiter(ctx, began, s.limiter.Forget(ctx, lost...))
	}
	return slices.Concat(underway, later)
}

// sleep waits until next, and returns when to ask again: at `ask`, or sooner if
// a message says so. It waits an interval at least, so that permits that appear
// together are given out together.
func sleep(ctx context.Context, messages <-chan any, next, ask time.Time, interval time.Duration) time.Time {
	earliest := time.Now().Add(interval)
	wait := func() time.Duration { return max(time.Until(next), time.Until(earliest)) }
	timer := time.NewTimer(wait())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ask
		case <-timer.C:
			return ask
		case message := <-messages:
			sooner := time.Now()
			switch m := message.(type) {
			case *redis.Message:
				us, _ := strconv.ParseInt(m.Payload, 10, 64)
				sooner = sooner.Add(time.Duration(us) * time.Microsecond)
			case *redis.Subscription: // reconnected: anything may have been missed
			default:
				messages = nil
				continue
			}
			if sooner.Before(ask) {
				ask = sooner
			}
			if sooner.Before(next) {
				next = sooner
				timer.Reset(wait())
			}
		}
	}
}
