package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

// The layout that release relies on, held against asynq's own client, server
// and inspector.
func TestReleaseMovesToTheHead(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		client, tasks := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
		add := func(id string, opts ...asynq.Option) throttle.Called {
			t.Helper()
			if _, err := client.Enqueue(asynq.NewTask("job", nil), append(opts, asynq.TaskID(id))...); err != nil {
				t.Fatal(err)
			}
			return throttle.Called{Queue: "default", ID: id}
		}
		newcomer := add("newcomer")
		a, b, c := add("a", asynq.ProcessIn(time.Hour)), add("b", asynq.ProcessIn(time.Hour)), add("c", asynq.ProcessIn(time.Hour))
		archived := add("archived", asynq.ProcessIn(time.Hour))
		if err := tasks.ArchiveTask("default", archived.ID); err != nil {
			t.Fatal(err)
		}
		r := releaser{rdb}
		fates, err := r.release(ctx, []throttle.Called{a, b, newcomer, archived, {Queue: "default", ID: "deleted"}})
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"moved", "moved", "pending", "done", "gone"}; !slices.Equal(fates, want) {
			t.Errorf("a, b, newcomer, archived and deleted are %v, want %v", fates, want)
		}
		if fates, err = r.release(ctx, []throttle.Called{c, c}); err != nil || fates[1] != "pending" {
			t.Errorf("the second release of c: %v, %v; want pending", fates, err)
		}
		for _, id := range []string{"a", "b", "c"} {
			info, err := tasks.GetTaskInfo("default", id)
			if err != nil || info.State != asynq.TaskStatePending {
				t.Errorf("%s: %+v, %v; want pending", id, info, err)
			}
		}
		if info, err := tasks.GetQueueInfo("default"); err != nil || info.Pending != 4 || info.Scheduled != 0 || info.Latency <= 0 {
			t.Errorf("queue: %+v, %v; want 4 pending, none scheduled, some latency", info, err)
		}
		if got := order(t, rdb, 4); !slices.Equal(got, []string{"a", "b", "c", "newcomer"}) {
			t.Errorf("asynq's server runs %v, want a, b, c, newcomer", got)
		}
	})
}

// order lets an asynq server with one worker run n jobs.
func order(t *testing.T, rdb redis.UniversalClient, n int) []string {
	t.Helper()
	ids := make(chan string, n)
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{Concurrency: 1, Logger: silent{}, TaskCheckInterval: 5 * time.Millisecond})
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ids <- id
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	var got []string
	for range n {
		got = append(got, <-ids)
	}
	return got
}

func TestCheckFindsAnotherLayout(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		if err := (releaser{rdb}).check(ctx); err != nil {
			t.Errorf("asynq's own layout: %v", err)
		}
		rdb.AddHook(elsewhere{})
		if err := (releaser{rdb}).check(ctx); !errors.Is(err, errLayout) {
			t.Errorf("another layout: %v, want errLayout", err)
		}
		if queues, err := asynq.NewInspectorFromRedisClient(rdb).Queues(); err != nil || len(queues) != 0 {
			t.Errorf("the check leaves queues %v, %v behind", queues, err)
		}
	})
}

// elsewhere makes release look for scheduled jobs where asynq keeps none.
type elsewhere struct{}

func (elsewhere) DialHook(next redis.DialHook) redis.DialHook { return next }

func (elsewhere) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (elsewhere) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if strings.HasPrefix(cmd.Name(), "eval") && fmt.Sprint(args[2]) == "3" && strings.HasSuffix(fmt.Sprint(args[5]), ":scheduled") {
			args[5] = fmt.Sprint(args[5]) + "-elsewhere"
		}
		return next(ctx, cmd)
	}
}
