package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
)

// missingTimeout is how long the warning about a limit waits for the names of the limits that exist.
const missingTimeout = 5 * time.Second

// unknownLimitPause is the pause of a job whose limit its sharded queue does not have.
const unknownLimitPause = time.Minute

// unusableLimit returns the error of a job that must not use one of its limits in its shard. If the
// sharded queue has no limit of that name, the rule's OnNoLimit decides. Such a job waits outside of
// the lanes, because only a server with other Shards can run it. err is that of Queues.Check.
func (s *scope) unusableLimit(a *attempt, err error) error {
	unknown, ok := errors.AsType[*shard.UnknownLimitError](err)
	if !ok {
		return &attemptError{error: err, final: true}
	}
	switch cmp.Or(a.rule.OnNoLimit, ActionWait) {
	case ActionRun:
		a.rule.Needs = nil
		return nil
	case ActionDrop:
		return fmt.Errorf("%w: %w", err, asynq.RevokeTask)
	case ActionArchive:
		return &attemptError{error: err, final: true}
	}
	if s.missing.mayWarn(unknown.Limit) {
		s.log.Warn("jobs wait until their limit is defined", "limit", unknown.Limit, "why", err)
	}
	return &putBackError{error: err, at: time.Now().Add(unknownLimitPause)}
}

// warnMissing warns that a job waits for a limit which does not exist, or which is for other apps.
// It does not wait for Redis.
func (s *scope) warnMissing(d waitdb.Decision) {
	if !s.missing.mayWarn(d.Limit) {
		return
	}
	why := d.NoLimitText()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), missingTimeout)
		defer cancel()
		limits, err := s.limiter.Limits(ctx)
		if err != nil {
			s.log.Warn("jobs wait until their limit is defined", "limit", d.Limit, "why", why)
			return
		}
		var names []string
		for _, l := range limits {
			names = append(names, l.Name)
		}
		_, hint := display.DidYouMean(d.Limit, names)
		s.log.Warn("jobs wait until their limit is defined", "limit", d.Limit, "why", why, "hint", hint, "limits", names)
	}()
}
