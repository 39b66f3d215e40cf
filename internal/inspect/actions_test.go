package inspect_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestActions_GrantedJob: a granted job can be archived or deleted, but not run early. The next job
// gets its permits, and all others run.
func TestActions_GrantedJob(t *testing.T) {
	for _, act := range []*inspect.Action{inspect.Delete, inspect.Archive} {
		synctest.Test(t, func(t *testing.T) {
			const jobs = 20
			_, rdb := redistest.Mini(t)
			quiet := slog.New(slog.DiscardHandler)
			ran := map[string]int{}
			start(t, rdb, 5, func(ctx context.Context, _ *asynq.Task) error {
				id, _ := asynq.GetTaskID(ctx)
				ran[id]++
				return nil
			}, throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(2)})
			enqueue(t, rdb, jobs)
			time.Sleep(3 * time.Second)
			q := inspect.New(waitdb.New(throttle.New(rdb, throttle.Options{Logger: quiet})))
			must(t, q.Inspector.PauseQueue("default"))
			time.Sleep(2 * time.Second)

			called := inspect.Filter{States: []string{inspect.Granted}}
			list, err := q.Find(t.Context(), act, called, jobs)
			must(t, err)
			if len(list) != 1 {
				t.Fatalf("%v are called, want the one that the paused queue does not give", list)
			}
			if done, err := q.Apply(t.Context(), inspect.Run, inspect.Filter{}, list); done != 0 || err != nil {
				t.Errorf("%d run, %v", done, err)
			}
			if done, err := q.Apply(t.Context(), act, called, list); done != 1 || err != nil {
				t.Errorf("%d %s, %v", done, act.Done, err)
			}
			changes, err := q.Limiter.Changes(t.Context(), 1)
			must(t, err)
			if c := changes[0]; c.What != act.Done || c.Jobs != 1 || c.Job != list[0] {
				t.Errorf("the changelog has %+v", c)
			}
			must(t, q.Inspector.UnpauseQueue("default"))
			time.Sleep(15 * time.Second)
			for i := range jobs {
				id := fmt.Sprint(i)
				if want := map[bool]int{false: 1, true: 0}[id == list[0].ID]; ran[id] != want {
					t.Errorf("job %s ran %d times, want %d", id, ran[id], want)
				}
			}
		})
	}
}
