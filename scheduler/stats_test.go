package scheduler

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/throttle"
)

// TestStats_Counts: ninety jobs at six a minute, which succeed, fail, panic, or run into their
// timeout.
func TestStats_Counts(t *testing.T) {
	handle := func(ctx context.Context, task *asynq.Task) error {
		retried, _ := asynq.GetRetryCount(ctx)
		switch kind := string(task.Payload()); {
		case kind == "fails once" && retried == 0:
			return errors.New("boom")
		case kind == "fails":
			return asynq.SkipRetry
		case kind == "is revoked":
			return asynq.RevokeTask
		case kind == "panics":
			panic(kind)
		case kind == "runs into its timeout":
			<-ctx.Done()
		}
		return nil
	}
	virtual(t, settings{limits: []throttle.Limit{perMinute(6, 3)}, rule: always(needs("api")), handle: handle}, func(t *testing.T, st *stack) {
		kinds := []string{"", "fails once", "fails", "is revoked", "panics", "runs into its timeout"}
		for i := range 90 {
			opts := map[string]asynq.Option{"fails once": asynq.MaxRetry(1), "runs into its timeout": asynq.Timeout(time.Second)}
			st.enqueue(needing(kinds[i%6]), cmp.Or[asynq.Option](opts[kinds[i%6]], asynq.MaxRetry(0)))
		}
		st.enqueueN(1, "", asynq.ProcessIn(25*time.Minute))
		var seen stats.LimitSummary
		var queue stats.QueueSummary
		var since string
		for range 30 { // as a viewer that looks once a minute
			time.Sleep(time.Minute)
			all, err := stats.ReadSummaries(t.Context(), st.rdb, "default", since)
			st.must(err)
			for _, s := range all {
				since = s.ID
				seen = seen.Add(s.Limits["api"])
				queue.Done, queue.Ended = queue.Done+s.Queues["default"].Done, queue.Ended+s.Queues["default"].Ended
			}
		}
		// 90 jobs run once, 15 of them twice, and one comes later.
		if want := (stats.LimitSummary{Allowed: 106, Denied: seen.Denied, Permits: 106}); seen != want {
			t.Errorf("history: %+v, want %+v", seen, want)
		}
		if queue.Done != 31 || queue.Ended != 106 {
			t.Errorf("%+v, want 31 of 106 attempts done", queue)
		}
		ends := st.server.scopes[0].stats.Tasks()[0].Ends
		if want := (stats.AttemptCounts{stats.Done: 15 + 15 + 1, stats.Failed: 15, stats.Archived: 3 * 15, stats.Dropped: 15, stats.PutBack: seen.Denied}); ends != want {
			t.Errorf("the attempts ended as %v, want %v", ends, want)
		}
		r := st.server.scopes[0].stats
		late, lateSum, _ := r.Lateness.Snapshot()
		waits, _, _ := r.Wait.Snapshot()
		runs, denials, _ := r.Denials.Snapshot()
		if n := seen.Denied; int64(late) != n || int64(waits) != n || int64(denials) != n || int(runs) != len(st.ran()) || r.Ungranted.Load() > 0 {
			t.Errorf("%d latenesses, %d waits, %v denials of %d jobs, %d without a grant; want %d of %d, none", late, waits, denials, runs, r.Ungranted.Load(), n, len(st.ran()))
		}
		if lateSum/float64(late) > idle.TaskCheckInterval.Seconds() {
			t.Errorf("jobs were %fs late on average, the poll is %s", lateSum/float64(late), idle.TaskCheckInterval)
		}
	})
}

// TestStats_FlushedAtShutdown: a server that stops writes what it has counted.
func TestStats_FlushedAtShutdown(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(600, 600)}}, func(t *testing.T, st *stack) {
		st.enqueueN(1, "")
		for len(st.ran()) == 0 {
			time.Sleep(time.Millisecond)
		}
		st.server.Shutdown()
		all, err := stats.ReadSummaries(t.Context(), st.rdb, "default", "")
		if err != nil || len(all) == 0 || len(all[len(all)-1].Queues) != 1 {
			t.Errorf("read %+v, %v; want the job in the last summary", all, err)
		}
	})
}
