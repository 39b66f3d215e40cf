package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// A purge deletes the jobs of its states, and no others.
func TestQueuesPurge(t *testing.T) {
	const all = "active=active pending=pending retry=retry scheduled=scheduled archived=archived completed=completed"
	for states, n := range map[string]int{"pending": 1, "waiting": 2, "retry": 1, "scheduled": 1, "archived": 1, "completed": 1, "waiting,retry": 3} {
		w := newAllJobs(t)
		w.bring("waiting", "retry")
		w.bring("behind", "retry")
		before := w.states()
		code, _, stderr := w.worker("queues purge default --state " + states)
		if want := fmt.Sprintf("worker: this deletes %d job", n); code != 2 || !strings.HasPrefix(stderr, want) || w.states() != before {
			t.Errorf("purge of %s without --yes: exit code %d: %s", states, code, stderr)
		}
		code, out, stderr := w.worker("queues purge default --yes --state " + states)
		if !strings.HasPrefix(out, fmt.Sprintf("deleted %d job", n)) || code != 0 {
			t.Errorf("purge of %s: exit code %d: %s%s", states, code, out, stderr)
		}
		left := " " + w.states()
		for job := range strings.FieldsSeq(all + " waiting=waiting behind=waiting") {
			_, state, _ := strings.Cut(job, "=")
			if strings.Contains(left, " "+job) == strings.Contains(states, state) {
				t.Errorf("after the purge of %s there are %s", states, left)
			}
		}
	}
}

// The limiter forgets the waiting jobs that a purge deletes.
func TestQueuesPurge_ForgetsPositions(t *testing.T) {
	w := newAllJobs(t)
	if code, out, _ := w.worker("queues purge default --state pending --yes"); code != 0 || out != "deleted 3 jobs of queue default\n" {
		t.Errorf("exit code %d: %s", code, out)
	}
	_, waits, err := w.Limiter.Position(t.Context(), throttle.JobID{Queue: "default", ID: "behind"})
	if waits || err != nil {
		t.Errorf("a deleted job waits: %v, %v", waits, err)
	}
}

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
