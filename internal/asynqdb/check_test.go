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

// A check that ends before it knows that its job is there leaves nothing behind either.
func TestCheckThatIsCutShort(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		rdb.AddHook(redistest.Hook(cutShort))
		if err := asynqdb.New(rdb).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "context canceled") {
			t.Errorf("%v, want context canceled", err)
		}
		if queues, err := asynq.NewInspectorFromRedisClient(rdb).Queues(); err != nil || len(queues) != 0 {
			t.Errorf("the check leaves queues %v, %v behind", queues, err)
		}
	})
}

// A server that stops while its check has taken the job leaves none of it either: asynq
// deletes no queue of which a job is active.
func TestCheckThatIsCutShortWithTheJobTaken(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		rdb.AddHook(redistest.Hook(afterTaking{cancel}.around))
		if err := asynqdb.New(rdb).Check(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want context canceled", err)
		}
		if keys, err := rdb.Keys(t.Context(), "asynq:*").Result(); err != nil || len(keys) != 0 {
			t.Errorf("the check leaves %v, %v behind", keys, err)
		}
	})
}

// afterTaking calls a function once a job is active.
type afterTaking struct{ do func() }

func (a afterTaking) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if args := cmd.Args(); strings.HasPrefix(cmd.Name(), "eval") && len(args) > 4 && strings.HasSuffix(fmt.Sprint(args[4]), ":paused") {
		a.do()
	}
	return err
}

// cutShort ends the context of the enqueuing client, when that is done.
func cutShort(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	if args := cmd.Args(); err == nil && len(args) > 4 && strings.HasPrefix(fmt.Sprint(args[0]), "eval") && strings.HasSuffix(fmt.Sprint(args[4]), ":pending") {
		err = context.Canceled
	}
	return err
}

// elsewhere makes promote look for denied jobs where asynq keeps none.
func elsewhere(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	args := cmd.Args()
	if strings.HasPrefix(cmd.Name(), "eval") && fmt.Sprint(args[2]) == "3" && strings.HasSuffix(fmt.Sprint(args[4]), ":retry") {
		args[4] = fmt.Sprint(args[4]) + "-elsewhere"
	}
	return next(ctx, cmd)
}
