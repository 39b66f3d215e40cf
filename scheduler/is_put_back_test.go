package scheduler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// IsPutBack says what becomes of the job, also of an error that is several things.
func TestIsPutBack(t *testing.T) {
	kinds := []error{
		errors.New("boom"), RetryAfter(time.Minute), PutBackAs(nil), RateLimited(time.Now().Add(time.Hour)), asynq.SkipRetry, asynq.RevokeTask,
	}
	for _, one := range kinds {
		for _, other := range kinds {
			err := fmt.Errorf("%w: %w", one, other)
			h := attempt{began: time.Now()} // without permits: no limiter is asked
			_, want := errors.AsType[*putBackError](h.afterRun(t.Context(), err))
			if got := IsPutBack(err); got != want {
				t.Errorf("%v: %v, want %v", err, got, want)
			}
		}
	}
}
