package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
)

// Three processes run one schedule on a real Redis: each tick is enqueued once.
// How late its call arrives is logged.
func TestWorkersTickOnce(t *testing.T) {
	const seconds = 30
	ticks := make(chan int, 10*seconds)
	late := make(chan time.Duration, 10*seconds)
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		tick, err := strconv.Atoi(r.URL.Query().Get("tick"))
		if err != nil {
			t.Errorf("call %s: %v", r.URL, err)
		}
		late <- time.Since(time.Unix(int64(tick), 0))
		ticks <- tick
	}))
	defer api.Close()
	config := filepath.Join(t.TempDir(), "headgate.yaml")
	text := fmt.Sprintf(`redis: %s
schedules:
  every: {cron: "@every 1s", task: "http:request", payload: {url: "%s/?tick=${tick.Unix()}"}}
`, redistest.Run(t).URL(), api.URL)
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
	var got []int
	for len(got) == 0 || slices.Max(got) < got[0]+seconds {
		got = append(got, <-ticks)
	}
	slices.Sort(got)
	got = slices.DeleteFunc(got, func(tick int) bool { return tick >= got[0]+seconds })
	for i, tick := range got {
		if tick != got[0]+i {
			t.Fatalf("ticks %v: want each second once", got)
		}
	}
	var delays []time.Duration
	for range got {
		delays = append(delays, <-late)
	}
	slices.Sort(delays)
	t.Logf("%d jobs in %d seconds, late by %s in the middle and %s at most", len(got), seconds, delays[len(delays)/2], delays[len(delays)-1])
}
