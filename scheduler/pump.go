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
	// maxSleep bounds what a lost wake-up can cost.
	maxSleep = 5 * time.Second
	// standby is how much later than the process that pumps the others ask.
	standby = 200 * time.Millisecond
	// underwayFor is how long a called job's handler may take to return from
	// its denial before the job is left to asynq's own polls.
	underwayFor = 5 * time.Second
)

// pump calls waiting jobs back as their permits appear. It sleeps until the
// next permit is due, or somebody says that one is due sooner. Every process
// runs one; Redis lets one of them work.
func (t *Throttler) pump(ctx context.Context) {
	if err := t.checkRelease(ctx); err != nil {
		return
	}
	wakes := t.limiter.Wakes(ctx)
	defer wakes.Close()
	messages := wakes.ChannelWithSubscriptions()
	underway := map[throttle.Called]time.Time{}
	for ctx.Err() == nil {
		called, next, active, err := t.limiter.Pump(ctx, t.process, time.Duration(t.grant.Load()))
		t.note(err)
		for _, job := range called {
			underway[job] = time.Now()
		}
		t.callBack(ctx, called, underway)
		switch {
		case err != nil:
			next = time.Second
		case len(underway) > 0:
			next = t.interval
		case next < 0 || next > maxSleep:
			next = maxSleep
		case !active:
			next += standby
		}
		sleep(ctx, messages, next, t.interval)
	}
}

// checkRelease turns release off if asynq's layout is another than it knows.
// It waits for as long as Redis cannot be asked.
func (t *Throttler) checkRelease(ctx context.Context) error {
	for t.release.Load() {
		err := t.releaser.check(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errLayout) {
			t.release.Store(false)
			t.log.Warn("denied jobs are left to asynq's own polls and come late", "reason", err)
			return nil
		}
		t.note(err)
		sleep(ctx, nil, time.Second, time.Second)
	}
	return ctx.Err()
}

// callBack releases newly called jobs, and those underway whose handlers had
// not returned from the denial, and leaves the latter in underway. What will
// never come is forgotten, so that its permit goes to the next at once.
func (t *Throttler) callBack(ctx context.Context, called []throttle.Called, underway map[throttle.Called]time.Time) {
	if !t.release.Load() {
		clear(underway)
		return
	}
	jobs := called
	for job, since := range underway {
		if time.Since(since) > underwayFor {
			delete(underway, job)
		} else if !slices.Contains(called, job) {
			jobs = append(jobs, job)
		}
	}
	fates, err := t.releaser.release(ctx, jobs)
	t.note(err)
	var lost []string
	for job, fate := range fates {
		if fate != fateActive {
			delete(underway, job)
		}
		if fate == fateDone || fate == fateGone {
			lost = append(lost, job.ID)
		}
	}
	t.note(t.limiter.Forget(ctx, lost...))
}

// sleep waits until the next round is due: after next, or when a message says
// that it is due sooner, but never less than an interval, so that permits that
// appear together are given out together.
func sleep(ctx context.Context, messages <-chan any, next, interval time.Duration) {
	start := time.Now()
	timer := time.NewTimer(max(next, interval))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case message := <-messages:
			sooner := time.Since(start)
			switch m := message.(type) {
			case *redis.Message:
				us, _ := strconv.ParseInt(m.Payload, 10, 64)
				sooner += time.Duration(us) * time.Microsecond
			case *redis.Subscription: // reconnected: anything may have been missed
			default:
				messages = nil
				continue
			}
			if sooner < next {
				next = sooner
				timer.Reset(max(next, interval) - time.Since(start))
			}
		}
	}
}
