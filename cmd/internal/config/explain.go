package config

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// explainer is a hook of a Redis client that explains errors for people, as [script.Explain] does.
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
