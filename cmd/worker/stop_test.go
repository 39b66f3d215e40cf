//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestStop_RedisGone: SIGTERM ends a worker whose Redis has gone or hangs, with the code 0. Nothing
// else ends the worker; TestShutdown_RedisAway_Ends and TestRun_Stop_Bounded say how long it takes.
func TestStop_RedisGone(t *testing.T) {
	t.Parallel()
	kill := func(t *testing.T, servers ...*redistest.Server) {
		for _, s := range servers {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
	for name, start := range map[string]func(t *testing.T) (url string, end func()){
		"killed": func(t *testing.T) (string, func()) {
			s := redistest.Run(t)
			return s.URL(), func() { kill(t, s) }
		},
		"frozen": func(t *testing.T) (string, func()) {
			s := redistest.Run(t)
			return s.URL(), func() {
				if err := syscall.Kill(s.Pid(), syscall.SIGSTOP); err != nil {
					t.Error(err)
				}
			}
		},
		"cluster killed": func(t *testing.T) (string, func()) {
			c := redistest.RunCluster(t)
			return "redis-cluster://" + c.Nodes[0].Addr(), func() { kill(t, c.Nodes...) }
		},
		"sentinel killed": func(t *testing.T) (string, func()) {
			s := redistest.RunSentinel(t)
			o := s.Options()
			return fmt.Sprintf("redis-sentinel://%s/%s", o.SentinelAddrs[0], o.MasterName), func() {
				if err := s.Kill(); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, goAway := start(t)
			config := filepath.Join(t.TempDir(), "headgate.yaml")
			if err := os.WriteFile(config, []byte("shutdown_timeout: 1s\nlimits: {api: {kind: funnel, rate: 1/s}}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("worker", "run", "--config", config, "--redis", url)
			log, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			lines := bufio.NewScanner(log)
			await := func(text string) {
				for lines.Scan() {
					if said.WriteString(lines.Text() + "\n"); strings.Contains(lines.Text(), text) {
						return
					}
				}
				t.Errorf("the worker ended without %q", text)
			}
			await("running jobs")
			goAway()
			await("Redis cannot be used")
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			await("stopping: waiting for running jobs")
			await("stopped")
			for lines.Scan() {
				said.WriteString(lines.Text() + "\n")
			}
			if err := cmd.Wait(); err != nil || t.Failed() {
				t.Errorf("the worker ended with %v:\n%s", err, &said)
			}
		})
	}
}
