package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// Three processes run the same schedules on a real Redis: each tick of each is
// enqueued once. How late its call arrives is logged.
func TestRun_Replicas_TickOnce(t *testing.T) {
	const schedules, seconds = 10, 3
	type call struct{ schedule, tick int }
	type arrival struct {
		call
		late time.Duration
	}
	arrivals := make(chan arrival, 100*schedules*seconds)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var c call
		if _, err := fmt.Sscanf(r.URL.Path, "/%d/%d", &c.schedule, &c.tick); err != nil {
			t.Errorf("call %s: %v", r.URL, err)
		}
		arrivals <- arrival{c, time.Since(time.Unix(int64(c.tick), 0))}
	}))
	defer api.Close()
	config := filepath.Join(t.TempDir(), "headgate.yaml")
	text := fmt.Sprintf("redis: %s\nconcurrency: %d\nhttp: {allow_private: [127.0.0.1]}\nschedules:\n", redistest.Run(t).URL(), schedules)
	for i := range schedules {
		text += fmt.Sprintf("  every-%d: {cron: '@every 1s', task: 'http:request', payload: {url: '%s/%d/${tick.Unix()}'}}\n", i, api.URL, i)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		worker := exec.CommandContext(t.Context(), "worker", "run", "--config", config)
		worker.Stderr = os.Stderr
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if err := worker.Wait(); err != nil {
				t.Error(err)
			}
		}()
	}

	// Until all ticks that count and one more of each have come, in whatever order: a
	// second call of a tick would have come by then.
	var delays []time.Duration
	calls, first := map[call]int{}, 0
	patience := time.After(2 * time.Minute)
	for left := schedules * (seconds + 1); left > 0; {
		var a arrival
		select {
		case a = <-arrivals:
		case <-patience:
			t.Fatalf("%d ticks were not enqueued", left)
		}
		if first == 0 {
			first = a.tick + 1 // by then all three are likely to be there
		}
		if a.tick < first || a.tick > first+seconds {
			continue
		}
		if calls[a.call]++; calls[a.call] > 1 {
			t.Errorf("tick %d of schedule %d was enqueued twice", a.tick-first, a.schedule)
			continue
		}
		delays = append(delays, a.late)
		left--
	}
	slices.Sort(delays)
	t.Logf("%d jobs, late by %s in the middle and %s at most", len(delays), delays[len(delays)/2], delays[len(delays)-1])
}
