package worker

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/scheduler"
)

// A worker names its Redis and what is in it, and what it leaves there.
func TestStore_Embedded_KeepsJobs(t *testing.T) {
	t.Chdir(t.TempDir())
	r := config.Default().Redis
	rdb, err := r.Create(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = scheduler.NewClient(rdb).Enqueue(asynq.NewTask("mine", nil)); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Close(); err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := (&store{notes: &bytes.Buffer{}}).open(stopped, r); err == nil {
		t.Fatal("a worker that is stopped while it starts has started")
	}
	var notes bytes.Buffer
	s := &store{notes: &notes}
	if err := s.open(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s.close()
	for _, want := range []string{"worker: no Redis is configured: ", "worker: waiting in .headgate from before: 1 job\n", "worker: kept in .headgate for the next \"worker run\": 1 job\n"} {
		if !strings.Contains(notes.String(), want) {
			t.Errorf("want %q in: %s", want, &notes)
		}
	}
}
