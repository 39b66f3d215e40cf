package worker

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/scheduler"
)

// A worker names its Redis and what is in it, and what it leaves there.
func TestStore_Embedded_KeepsJobs(t *testing.T) {
	t.Chdir(t.TempDir())
	r := config.Default().Redis
	rdb, end, err := r.Create(t.Context(), func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = scheduler.NewClient(rdb).Enqueue(asynq.NewTask("mine", nil)); err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := (&Worker{options: Options{Notes: &bytes.Buffer{}}}).open(stopped, r); err == nil {
		t.Fatal("a worker that is stopped while it starts has started")
	}
	var notes bytes.Buffer
	closeRedis, err := (&Worker{options: Options{Notes: &notes}}).open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	closeRedis()
	for _, want := range []string{"worker: no Redis is configured: ", "worker: waiting in .headgate from before: 1 job\n", "worker: kept in .headgate for the next \"worker run\": 1 job\n"} {
		if !strings.Contains(notes.String(), want) {
			t.Errorf("want %q in: %s", want, &notes)
		}
	}
}
