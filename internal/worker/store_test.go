package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/scheduler"
)

// A worker that is stopped while it starts keeps the jobs that it has taken over.
func TestStoppedAsItStarts(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", home)
	folder, err := embedded.Default()
	if err != nil {
		t.Fatal(err)
	}
	before := folder.NewHost(nil)
	rdb, err := config.EmbeddedRedis(before.Dial).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	_, err = scheduler.NewClient(rdb).Enqueue(asynq.NewTask("mine", nil))
	if err := errors.Join(err, before.Close()); err != nil {
		t.Fatal(err)
	}
	open := func(ctx context.Context) (*store, error) {
		s := &store{config: config.Default, log: slog.New(slog.DiscardHandler), notes: io.Discard}
		return s, s.open(ctx)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if s, err := open(stopped); err == nil {
		s.close()
		t.Error("it has started")
	}
	if addr, ok := embedded.Find(t.Context()); ok {
		t.Fatalf("its Redis still runs, at %s", addr)
	}
	s, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if n, err := waitingJobs(s); n != 1 || err != nil {
		t.Errorf("%d jobs wait, %v; want 1", n, err)
	}
}
