package cron

import (
	"context"
	"slices"
	"time"
)

// report logs the first of several errors when things start to fail, and one
// line when they are well again: an outage of Redis with a thousand entries is
// two lines. Errors because ctx has ended are none. Things are well only when no
// schedule is held up, also of those that this pass did not look at.
func (r *Runner) report(ctx context.Context, errs ...error) {
	if ctx.Err() != nil {
		return
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	r.mu.Lock()
	defer r.mu.Unlock()
	held := false
	for s := range r.active() {
		held = held || s.fails > 0
	}
	switch {
	case len(errs) > 0 && !r.failing:
		r.failing = true
		r.log.Warn("schedules are held up, trying again", "errors", len(errs), "first", errs[0])
	case len(errs) == 0 && !held && r.failing:
		r.failing = false
		r.log.Info("schedules go on")
	}
}

// retryIn is how long to wait after so many failures in a row: 1s, 2s, 4s and
// so on up to 30s.
func retryIn(fails int) time.Duration {
	return min(time.Second<<min(fails-1, 5), 30*time.Second)
}
