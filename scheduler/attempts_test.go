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

// TestAttempts_Kept: once an attempt of a job has failed, the last ten attempts are kept, without
// denials. A job that succeeds at first keeps none. A panic is an attempt too, and no text says
// that a retry would be skipped.
func TestAttempts_Kept(t *testing.T) {
	handle := func(ctx context.Context, task *asynq.Task) error {
		time.Sleep(3 * time.Second)
		retried, _ := asynq.GetRetryCount(ctx)
		switch task.Type() {
		case "job:panics":
			panic("a fault")
		case "job:skips":
			return fmt.Errorf("bad input: %w", asynq.SkipRetry)
		case "job:bare":
			return asynq.SkipRetry
		case "job:never":
			return nil
		case "job:once", "job:kept":
			if retried == 1 {
				return nil
			}
		}
		return fmt.Errorf("fault %d %s: %w", retried, strings.Repeat("x", 2000), errors.New("rejected"))
	}
	limit := perMinute(60, 1)
	rule := Rule{Needs: []throttle.Need{{Limit: limit.Name}}, Retention: 72 * time.Hour}
	virtual(t, settings{config: retrying(idle, time.Minute), limits: []throttle.Limit{limit}, rule: always(rule), handle: handle, quiet: time.Minute}, func(t *testing.T, st *stack) {
		want := map[string][]string{ // the beginning of the errors, latest first
			"job:never": {}, "job:once": {"", "fault 0"}, "job:kept": {"", "fault 0"}, "job:skips": {"bad input"}, "job:bare": {"the handler asked not to retry this job"}, "job:panics": {"panic"},
		}
		for i := range asynqdb.KeptAttempts {
			want["job:always"] = append(want["job:always"], fmt.Sprint("fault ", 11-i))
		}
		for name := range want {
			maxRetry := 11
			if name == "job:panics" {
				maxRetry = 0
			}
			own := 72 * time.Hour
			if name == "job:kept" {
				own = 0 // it has its rule's retention
			}
			st.enqueue(NewTask(name, nil, asynq.TaskID(name), asynq.MaxRetry(maxRetry), asynq.Retention(own)))
		}
		time.Sleep(40 * time.Minute)
		for name, errs := range want {
			all, _, err := asynqdb.New(st.rdb).Attempts(t.Context(), "default", name)
			st.must(err)
			if len(all) != len(errs) {
				t.Fatalf("%s: %.3000v", name, all)
			}
			for i, a := range all {
				if !strings.HasPrefix(a.Error, errs[i]) || (errs[i] == "") != (a.Error == "") || len(a.Error) > 1010 || strings.Contains(a.Error, "skip retry") ||
					a.Took != 3*time.Second || !strings.HasSuffix(a.Worker, fmt.Sprint(":", os.Getpid())) || time.Since(a.At) > 40*time.Minute {
					t.Errorf("%s: attempt %d: %.200v", name, i, a)
				}
			}
			if len(errs) > 0 && errs[0] != "" && !strings.HasPrefix(asynqdb.PlainError(st.wantJob(name, asynq.TaskStateArchived, "").LastErr), errs[0]) {
				t.Errorf("%s: archived with %.100q", name, st.info(name).LastErr)
			}
		}
		st.must(st.tasks.DeleteTask("default", "job:always"))
		if left := st.rdb.Exists(t.Context(), asynqdb.Hash("default", "job:always")).Val(); left != 0 {
			t.Error("the attempts of a job outlive it")
		}
	})
}
