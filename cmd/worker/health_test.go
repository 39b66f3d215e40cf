package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/cli/clitest"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// runWorker runs "worker run" with a config and a free port until the test ends. It returns the URL.
func runWorker(t *testing.T, rdb *redistest.Server, config string) (url string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "headgate.yaml")
	proctest.Replace(t, path, config)
	log := new(proctest.Log)
	proctest.Start(t, log, func(ctx context.Context) error {
		if code := execute(ctx, []string{"run", "--redis", rdb.URL(), "--config", path, "--listen", ":0"}, cli.IO{Out: io.Discard, Err: log}); code != 0 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	})
	return log.URL(t)
}

const limited = "limits: {api: {kind: sliding_log, rate: 20/s}}\n"

// TestRun_JSON: a line that no logger of the worker writes is JSON, too.
func TestRun_JSON(t *testing.T) {
	rdb := redistest.Run(t)
	log := new(proctest.Log)
	proctest.Start(t, log, func(ctx context.Context) error {
		execute(ctx, []string{"run", "--redis", rdb.URL(), "--log-format", "json"}, cli.IO{Out: io.Discard, Err: log})
		return nil
	})
	proctest.Until(t, "jobs run", func() (bool, any) { return strings.Contains(log.String(), "running jobs"), log })
	client := rdb.Client()
	defer client.Close()
	proctest.Until(t, "line about a key of a wrong type", func() (bool, any) {
		client.Set(t.Context(), "hg:{default}:lanes", "x", 0)
		return strings.Contains(log.String(), "wrong type"), log
	})
	for line := range strings.Lines(log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

// health checks the health of a worker at a URL.
func health(t *testing.T, url string, flags ...string) clitest.Output {
	return command.Run(t.Context(), append([]string{"health", strings.TrimPrefix(url, "http://")}, flags...)...)
}

var healthy = clitest.Output{Out: "ok\n"}

func TestHealth_Token(t *testing.T) {
	const token = "open sesame"
	url := runWorker(t, redistest.Run(t), "page: {token: "+token+"}\n")
	if out := health(t, url, "--ready"); out.Code != 1 || !strings.Contains(out.Err, "401: This page requires a token") {
		t.Errorf("without the token: %+v", out)
	}
	t.Setenv("HEADGATE_PAGE_TOKEN", token)
	for _, flags := range [][]string{nil, {"--ready"}} {
		proctest.Until(t, "health", func() (bool, any) { got := health(t, url, flags...); return got == healthy, got })
	}
}

func TestRun_PortInUse(t *testing.T) {
	rdb := redistest.Run(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := filepath.Join(t.TempDir(), "headgate.yaml")
	proctest.Replace(t, config, limited)
	for listen, want := range map[string]struct {
		code int
		text string
	}{
		taken.Addr().String(): {1, "worker: --listen " + taken.Addr().String() + ": the port is in use: want a free port, or :0 for any\n"},
		"9090":                {2, "worker: --listen \"9090\": want HOST:PORT or :PORT, such as :9090\n"},
		":70000":              {2, "worker: --listen \":70000\": want HOST:PORT or :PORT, such as :9090\n"},
	} {
		out := command.Run(t.Context(), "run", "--redis", rdb.URL(), "--config", config, "--listen", listen)
		if out.Code != want.code || out.Err != want.text {
			t.Errorf("--listen %s: exit code %d and %q, want %d and %q", listen, out.Code, out.Err, want.code, want.text)
		}
	}
}

// A command that waits for Redis prints the URL of Redis.
func TestNotice_RedisDoesNotAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // which accepts nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	out := command.Run(t.Context(), "status", "--redis", "redis://"+silent.Addr().String())
	first, rest, _ := strings.Cut(out.Err, "\n")
	if out.Code != 1 || first != "worker: waiting for Redis, which has not answered yet" || !strings.Contains(rest, "cannot reach Redis") {
		t.Errorf("%+v", out)
	}
}
