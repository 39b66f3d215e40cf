package config

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// explainer is a hook of a client that has errors of Redis say what is wrong, in words for a
// person, as [script.Explain] does: those of asynq's scripts and of single commands, too.
type explainer struct{ user string }

func (explainer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e explainer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err != nil {
			cmd.SetErr(script.Explain(err, e.user, cmd))
		}
		return cmd.Err()
	}
}

func (e explainer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				cmd.SetErr(script.Explain(cmd.Err(), e.user, cmd))
			}
		}
		if err != nil && len(cmds) > 0 {
			return script.Explain(err, e.user, cmds[0])
		}
		return err
	}
}
