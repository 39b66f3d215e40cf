package scheduler

import (
	"context"

	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// permits is what a server asks for each job. *lanes.Lanes implements it; tests look on.
type permits interface {
	AcquireAll(ctx context.Context, asks ...lanes.Ask) []lanes.Answer
	Extend(ctx context.Context, holder string, needs ...throttle.Need) (bool, error)
	Free(ctx context.Context, holder string, needs ...throttle.Need) error
	Refused(ctx context.Context, job lanes.Job, refusal lanes.Refusal, needs ...throttle.Need) (throttle.Decision, error)
}
