package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/waitdb"
)

const (
	// claimTTL is how long a claim is valid after its last renewal.
	claimTTL = time.Minute
	// claimInterval is the time between two renewals. Two renewals in a row may fail.
	claimInterval = 20 * time.Second
)

// claim claims the limiter's scope for this server's asynq Redis, because the dispatcher can
// promote jobs in one asynq Redis only. It fails if another asynq Redis has the scope. If the
// queues' or the limiter's Redis is unavailable, it does nothing and returns nil. It takes three
// round trips.
//
// A claim stores the ID of the data in the asynq Redis. A loss of these data changes the ID.
// Therefore a running process also passes the ID of its last claim, and its next renewal replaces
// the old ID by the new one.
//
// claim also ensures that all workers in a scope have the same data version. If the data have an
// older version and no process leads, the limiter deletes the records of waiting jobs, and the jobs
// request permits again.
func (s *scope) claim(ctx context.Context) error {
	rdb, queues := s.db.Redis, s.queueHealth.Watch()
	if err := rdb.SetNX(ctx, redishealth.DataKey, uuid.NewString(), 0).Err(); queues.Note(ctx, err) != nil {
		return replyError(err)
	}
	data, err := rdb.Get(ctx, redishealth.DataKey).Result()
	if queues.Note(ctx, err) != nil {
		return replyError(err)
	}
	limiter := s.limiterHealth.Watch()
	before, _ := s.claimedData.Load().(string)
	other, version, err := s.limiter.Claim(ctx, data, before, claimTTL)
	switch {
	case limiter.Note(ctx, err) != nil:
		return replyError(err)
	case version > waitdb.Version:
		return fmt.Errorf("this limiter's scope has data of a later version of headgate (data version %d, here %d): "+
			"update this worker, or use another scope", version, waitdb.Version)
	case version != 0:
		return fmt.Errorf("workers of an older version of headgate run in this limiter's scope (data version %d, here %d): "+
			"stop all of them, then start this one; waiting jobs are kept", version, waitdb.Version)
	case other != "":
		return fmt.Errorf("another asynq Redis uses this limiter's scope (its key %s holds %s, here %s): "+
			"use a scope for each, or stop the workers of the other for a minute", redishealth.DataKey, other, data)
	}
	s.claimedData.Store(data)
	_ = s.limiter.SetWeights(ctx, s.weights, before != "") // the next renewal tries again
	return nil
}

// replyError returns err if it is a reply of Redis, or nil if Redis is unavailable. In that case
// the claim stays undecided.
func replyError(err error) error {
	if redishealth.Unavailable(err) != nil {
		return nil
	}
	return err
}

// keepScope renews the claim and compares the limits until the context ends. It logs the first of
// several failed renewals in a row.
func (s *scope) keepScope(ctx context.Context) {
	for lost := false; ; {
		if sleep(ctx, claimInterval); ctx.Err() != nil {
			return
		}
		err := s.claim(ctx)
		if err != nil && !lost && ctx.Err() == nil {
			s.log.Error("cannot renew the claim of the limiter's scope", "error", err)
		}
		lost = err != nil
		s.compareLimits(ctx)
	}
}
