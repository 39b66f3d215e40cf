package scheduler

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/stats"
)

// wantsOf is what a pending job will ask for, by the rules. A rule that does not answer before
// the context ends is left behind.
func (s *Server) wantsOf(ctx context.Context, j job, task *asynq.Task) (wants stats.Requirements, known bool) {
	end, ok := ctx.Deadline()
	if !ok {
		return stats.Requirements{}, false
	}
	type answer struct {
		rule Rule
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		rule, err := s.ruleOf(j, task, end)
		answers <- answer{rule, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil { // it will ask for nothing if it is archived
			return stats.Requirements{}, errors.Is(a.err, asynq.SkipRetry)
		}
		return stats.Requirements{Needs: a.rule.Needs, FairnessKey: a.rule.FairnessKey, FairnessWeight: a.rule.FairnessWeight}, true
	case <-ctx.Done():
		return stats.Requirements{}, false
	}
}
