package worker

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestStartWaitsForRedis: a worker that starts while Redis is down says so once, is alive and
// not ready, and begins when Redis is there.
func TestStartWaitsForRedis(t *testing.T) {
	rdb := redistest.Run(t)
	if err := rdb.Stop(); err != nil {
		t.Fatal(err)
	}
	url, _, log := runLogged(t, rdb, limited)
	proctest.Until(t, "line in the log", func() bool { return strings.Contains(log.String(), "Redis cannot be used: jobs wait") })
	if status, text := proctest.Get(t, url+"/healthz"); status != 200 {
		t.Errorf("/healthz: %d %s", status, text)
	}
	if status, text := proctest.Get(t, url+"/readyz"); status != 503 || !strings.HasPrefix(text, "cannot use Redis: it does not answer") {
		t.Errorf("/readyz: %d %s", status, text)
	}
	if status, text := proctest.Get(t, url+"/metrics"); status != 200 || !strings.Contains(text, "headgate_config_applied") {
		t.Errorf("/metrics: %d %s", status, text)
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGHUP); err != nil { // which ends nothing
		t.Fatal(err)
	}
	if err := rdb.Restart(); err != nil {
		t.Fatal(err)
	}
	proctest.Until(t, "ready worker", func() bool {
		status, _ := proctest.Get(t, url+"/readyz")
		return status == 200 && strings.Contains(log.String(), "running jobs")
	})
	for _, line := range []string{"level=ERROR", "Redis cannot be used: jobs wait", "Redis is back: jobs go on"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%q stands %d times in the log, want once:\n%s", line, n, log)
		}
	}
	if strings.Contains(log.String(), "level=WARN") {
		t.Errorf("it warns:\n%s", log)
	}
}

// TestStart_WaitsQuietly: a worker that waits for Redis stops when its context ends.
func TestStart_WaitsQuietly(t *testing.T) {
	conf, err := config.Parse("headgate.yaml", []byte("redis: redis://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	log := new(proctest.Log)
	w, err := New(conf, Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	proctest.Until(t, "line in the log", func() bool { return strings.Contains(log.String(), "Redis cannot be used: jobs wait") })
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
