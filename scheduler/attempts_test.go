package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// How the attempts of a job ended is kept once one has failed: the last ten, denials left out,
// and nothing of a job that succeeds at once.
func TestAttempts_Kept(t *testing.T) {
	fails := map[string]int{"job:once": 1, "job:never": 0, "job:always": 99}
	handle := func(ctx context.Context, task *asynq.Task) error {
		time.Sleep(3 * time.Second)
		retried, _ := asynq.GetRetryCount(ctx)
		switch {
		case retried >= fails[task.Type()]:
			return nil
		case retried == 4:
			panic("a fault")
		}
		return fmt.Errorf("fault %d %s: %w", retried, strings.Repeat("x", 2000), errors.New("refused"))
	}
	config := idle
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Minute }
	virtual(t, settings{config: config, limits: []throttle.Limit{perMinute(60, 1)}, handle: handle, quiet: time.Minute}, func(t *testing.T, st *stack) {
		for name := range fails {
			st.enqueue(NewTask(name, nil, asynq.TaskID(name), asynq.MaxRetry(11), asynq.Retention(72*time.Hour)))
		}
		time.Sleep(40 * time.Minute)
		if all := attemptsOf(st, "job:never"); len(all) > 0 {
			t.Errorf("of a job that never failed: %+v", all)
		}
		once := attemptsOf(st, "job:once")
		if len(once) != 2 || once[0].Error != "" || !strings.HasPrefix(once[1].Error, "fault 0") || len(once[1].Error) > 1010 {
			t.Errorf("of a job that failed once: %.2000v", once)
		}
		for _, a := range once {
			if a.Took != 3*time.Second || !strings.HasSuffix(a.Worker, fmt.Sprint(":", os.Getpid())) || time.Since(a.At) > 40*time.Minute {
				t.Errorf("an attempt: %.200v", a)
			}
		}
		always := attemptsOf(st, "job:always")
		if len(always) != asynqdb.KeptAttempts || !strings.HasPrefix(always[0].Error, "fault 11") || !strings.HasPrefix(always[9].Error, "fault 2") {
			t.Errorf("of a job that failed 12 times: %.3000v", always)
		}
		if info := st.info("job:always"); info == nil || info.State != asynq.TaskStateArchived {
			t.Errorf("it is %+v", info)
		}
		st.must(st.tasks.DeleteTask("default", "job:always"))
		if left := st.rdb.Exists(t.Context(), asynqdb.Hash("default", "job:always")).Val(); left != 0 {
			t.Error("what was kept of a job outlives it")
		}
	})
}

// A panic is an attempt, too, with what asynq says of it. For people no text says that a retry
// would be skipped.
func TestAttempts_Errors(t *testing.T) {
	handle := func(_ context.Context, task *asynq.Task) error {
		switch task.Type() {
		case "job:panics":
			panic("a fault")
		case "job:skips":
			return fmt.Errorf("bad input: %w", asynq.SkipRetry)
		}
		return asynq.SkipRetry
	}
	virtual(t, settings{limits: []throttle.Limit{perMinute(600, 10)}, handle: handle}, func(t *testing.T, st *stack) {
		for name, want := range map[string]string{"job:panics": "a fault", "job:skips": "bad input", "job:bare": "its handler gave it up"} {
			id := st.enqueue(NewTask(name, nil, asynq.MaxRetry(0)))
			time.Sleep(time.Minute)
			all := attemptsOf(st, id)
			if len(all) != 1 || !strings.Contains(all[0].Error, want) || strings.Contains(all[0].Error, "skip retry") {
				t.Errorf("%s: %+v", name, all)
			}
			if info := st.info(id); info == nil || info.State != asynq.TaskStateArchived || !strings.Contains(asynqdb.PlainError(info.LastErr), want) {
				t.Errorf("%s: %+v", name, info)
			}
		}
	})
}

func attemptsOf(st *stack, id string) []asynqdb.Attempt {
	list, _, err := asynqdb.New(st.rdb).Attempts(st.t.Context(), "default", id)
	st.must(err)
	return list
}
