package main

import (
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// A deleted queue leaves no job, lock, position or pause.
func TestQueuesDelete(t *testing.T) {
	w := newAllJobs(t)
	w.must(w.rdb.Del(t.Context(), asynqdb.Key("default", asynqdb.Active), asynqdb.Hash("default", "active")).Err())
	_, err := scheduler.NewClient(w.rdb).Enqueue(asynq.NewTask("once", nil), asynq.Unique(1e12))
	w.must(err)
	w.must(w.Inspector.PauseQueue("default"))
	code, _, stderr := w.worker("queues delete default")
	if code != 2 || stderr != "worker: queue default has 8 jobs, which are deleted with it; add --force to confirm\n" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	code, out, stderr := w.worker("queues delete default --force")
	if code != 0 || out != "deleted queue default, and 8 jobs\n" {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	left, err := w.rdb.Keys(t.Context(), asynqdb.Key("default", "[tup]*")).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range left {
		if !strings.HasPrefix(key, asynqdb.Key("default", "processed")) {
			t.Errorf("there is %s still", key)
		}
	}
	_, waits, err := w.Limiter.Position(t.Context(), throttle.JobID{Queue: "default", ID: "waiting"})
	if waits || err != nil {
		t.Errorf("a deleted job waits: %v, %v", waits, err)
	}
}
