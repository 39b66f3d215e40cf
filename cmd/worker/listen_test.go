package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/redistest"
)

// output is what a command writes, for others to read meanwhile.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// eventually waits for a condition for two minutes at least: a busy machine is slow.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for range 2400 {
		if ok() {
			return
		}
		<-pause.C
	}
	t.Fatalf("no %s in time", what)
}

var listening = regexp.MustCompile(`listening.*address=(https?://\S+)`)

// runWorker runs "worker run" with a config and a free port until the test ends,
// and returns where it listens and the path of its config.
func runWorker(t *testing.T, rdb *redistest.Server, config string) (url, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, path, config)
	ctx, cancel := context.WithCancel(context.Background())
	var log output
	code, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		code = run(ctx, []string{"run", "--redis", rdb.URL(), "--config", path, "--listen", ":0"}, cli.IO{Out: io.Discard, Err: &log})
	}()
	t.Cleanup(func() {
		cancel()
		if <-ended; code != 0 {
			t.Errorf("the worker ended with %d:\n%s", code, log.String())
		}
	})
	eventually(t, "address", func() bool {
		if found := listening.FindStringSubmatch(log.String()); found != nil {
			url = found[1]
		}
		return url != ""
	})
	return url, path
}

// get returns the status and the text of an answer.
func get(t *testing.T, url string) (status int, text string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

const limited = "limits: {api: {kind: sliding_log, rate: 20/s}}\n"

func TestHealth(t *testing.T) {
	rdb := redistest.Run(t)
	url, config := runWorker(t, rdb, limited)
	want := func(path string, status int, text string) {
		t.Helper()
		var got string
		eventually(t, fmt.Sprint(path, " ", status, " ", text), func() bool {
			var code int
			code, got = get(t, url+path)
			return code == status && strings.Contains(got, text)
		})
	}
	want("/healthz", 200, "ok")
	want("/readyz", 200, "ok")
	want("/metrics", 200, `headgate_config_reloads_total{result="failed",scope="default"} 0`)
	want("/metrics", 200, `headgate_scope_up{scope="default"} 1`)
	if resp, err := http.Post(url+"/metrics", "", nil); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /metrics: %v, %v; want 405", resp, err)
	}
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("it listens at %s, want this machine only", url)
	}

	write(t, config, "limits: {api: {kind: wrong}}\n")
	want("/readyz", 503, "the config file has errors")
	want("/metrics", 200, `headgate_config_reloads_total{result="failed",scope="default"} 1`)
	want("/healthz", 200, "ok")
	write(t, config, limited+"tasks: {}\n")
	want("/readyz", 200, "ok")

	if err := rdb.Stop(); err != nil {
		t.Fatal(err)
	}
	want("/readyz", 503, "cannot use Redis")
	want("/metrics", 200, `headgate_scope_up{scope="default"} 0`)
	want("/healthz", 200, "ok")
	if err := rdb.Restart(); err != nil {
		t.Fatal(err)
	}
	want("/readyz", 200, "ok")
}

// TestHealthCommand: "worker health" says what the paths say.
func TestHealthCommand(t *testing.T) {
	rdb := redistest.Run(t)
	url, config := runWorker(t, rdb, limited)
	address := strings.TrimPrefix(url, "http://")
	ask := func(args ...string) (int, string) {
		var out output
		code := run(t.Context(), append([]string{"health", address}, args...), cli.IO{Out: &out, Err: &out})
		return code, out.String()
	}
	for _, args := range [][]string{nil, {"--ready"}} {
		eventually(t, "health", func() bool { code, said := ask(args...); return code == 0 && said == "ok\n" })
	}
	write(t, config, "limits: {api: {kind: wrong}}\n")
	eventually(t, "bad news", func() bool {
		code, said := ask("--ready")
		return code == 1 && strings.HasPrefix(said, "worker: "+address+"/readyz: 503: the config file has errors")
	})
	eventually(t, "health: a wrong config is no reason to restart", func() bool { code, _ := ask(); return code == 0 })
}

// write replaces a file in one step: whoever watches it reads no half of it.
func write(t *testing.T, path, text string) {
	t.Helper()
	draft := path + ".new"
	if err := errors.Join(os.WriteFile(draft, []byte(text), 0o644), os.Rename(draft, path)); err != nil {
		t.Fatal(err)
	}
}

func TestPortInUse(t *testing.T) {
	rdb := redistest.Run(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, config, limited)
	for listen, want := range map[string]struct {
		code int
		text string
	}{
		taken.Addr().String(): {1, "worker: --listen " + taken.Addr().String() + ": another program has that port: want a free one, such as :0 for any\n"},
		"9090":                {2, "worker: --listen \"9090\": want HOST:PORT or :PORT, such as :9090\n"},
		":70000":              {2, "worker: --listen \":70000\": want HOST:PORT or :PORT, such as :9090\n"},
	} {
		var stderr output
		code := run(t.Context(), []string{"run", "--redis", rdb.URL(), "--config", config, "--listen", listen}, cli.IO{Out: io.Discard, Err: &stderr})
		if code != want.code || stderr.String() != want.text {
			t.Errorf("--listen %s: exit code %d and %q, want %d and %q", listen, code, stderr.String(), want.code, want.text)
		}
	}
}

// What can be guessed opens nothing, wherever it is written.
func TestShortPageSecrets(t *testing.T) {
	for flags, want := range map[pageSecrets]string{
		{PageToken: "1234567"}:                      "--page-token: want at least 8 characters",
		{PageToken: "äöüä"}:                         "--page-token: want at least 8 characters",
		{PageUser: "ops", PagePassword: "1234567"}:  "--page-password: want at least 8 characters",
		{PageToken: "12345678"}:                     "",
		{PageUser: "ops", PagePassword: "12345678"}: "",
	} {
		got := ""
		if err := checkPage("0.0.0.0:9090", flags.over(config.Page{})); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: %q, want %q", flags, got, want)
		}
	}
}
