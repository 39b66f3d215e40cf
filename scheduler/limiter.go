package scheduler

import (
	"context"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// permits is what a server asks for each job. *waitdb.DB implements it; tests look on.
type permits interface {
	AcquireAll(ctx context.Context, asks ...waitdb.AcquireRequest) []waitdb.AcquireResult
	Extend(ctx context.Context, holder string, needs ...throttle.Need) (bool, error)
	Free(ctx context.Context, holder string, needs ...throttle.Need) error
	RateLimited(ctx context.Context, job waitdb.Job, refusal waitdb.RateLimit, needs ...throttle.Need) (throttle.Decision, error)
}
