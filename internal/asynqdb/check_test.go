package asynqdb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

func TestCheckFindsAnotherLayout(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		if err := asynqdb.New(rdb).Check(ctx); err != nil {
			t.Errorf("asynq's own layout: %v", err)
		}
		rdb.AddHook(redistest.Hook(elsewhere))
		if err := asynqdb.New(rdb).Check(ctx); !errors.Is(err, asynqdb.ErrLayout) {
			t.Errorf("another layout: %v, want asynqdb.ErrLayout", err)
		}
		if queues, err := asynq.NewInspectorFromRedisClient(rdb).Queues(); err != nil || len(queues) != 0 {
			t.Errorf("the check leaves queues %v, %v behind", queues, err)
		}
	})
}

// A check that ends early leaves no key behind. In the first row it ends before it knows that its job
// is enqueued. In the second row it ends after it has dequeued the job, which is then active. asynq
// refuses to delete a queue that has an active job.
func TestCheckThatIsCutShort(t *testing.T) {
	for suffix, giveUp := range map[string]func(stop func()) error{
		":pending": func(func()) error { return context.Canceled },
		":paused":  func(stop func()) error { stop(); return nil },
	} {
		redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				err := next(ctx, cmd)
				if args := cmd.Args(); err == nil && strings.HasPrefix(cmd.Name(), "eval") && len(args) > 4 && strings.HasSuffix(fmt.Sprint(args[4]), suffix) {
					err = giveUp(cancel)
				}
				return err
			}))
			if err := asynqdb.New(rdb).Check(ctx); err == nil || !strings.Contains(err.Error(), "context canceled") {
				t.Errorf("%s: %v, want context canceled", suffix, err)
			}
			if keys, err := rdb.Keys(t.Context(), "asynq:*").Result(); err != nil || len(keys) != 0 {
				t.Errorf("%s: the check leaves %v, %v behind", suffix, keys, err)
			}
		})
	}
}

// elsewhere makes promote look for denied jobs where asynq keeps none.
func elsewhere(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	args := cmd.Args()
	if strings.HasPrefix(cmd.Name(), "eval") && fmt.Sprint(args[2]) == "3" && strings.HasSuffix(fmt.Sprint(args[4]), ":retry") {
		args[4] = fmt.Sprint(args[4]) + "-elsewhere"
	}
	return next(ctx, cmd)
}
