package scheduler

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
)

// TestEarly_OtherJob: a handler may copy all headers of its task to a new one. A start holds for the
// job alone that got it.
func TestEarly_OtherJob(t *testing.T) {
	its := job{Queue: "default", ID: "it"}
	_, msg := spread(its, time.Now().Add(time.Second), nil)
	m, err := asynqdb.ParseMessage(msg)
	if err != nil {
		t.Fatal(err)
	}
	task := asynq.NewTaskWithHeaders("job", nil, m.Task.Headers())
	for j, waits := range map[job]bool{its: true, {Queue: "default", ID: "another"}: false, {Queue: "other", ID: "it"}: false} {
		a := &attempt{Job: asynqdb.Job{JobID: j}, task: task}
		if early := a.early(); early > 0 != waits {
			t.Errorf("%v goes back for %s, want this of %v alone", j, early, its)
		}
	}
}
