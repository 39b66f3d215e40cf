package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/cli"
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

// write replaces a file in one step: whoever watches it reads no half of it.
func write(t *testing.T, path, text string) {
	t.Helper()
	draft := path + ".new"
	if err := errors.Join(os.WriteFile(draft, []byte(text), 0o644), os.Rename(draft, path)); err != nil {
		t.Fatal(err)
	}
}

const limited = "limits: {api: {kind: sliding_log, rate: 20/s}}\n"

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

// TestHealthCommandIsGuarded: "worker health --ready" says who asks, where that is asked.
func TestHealthCommandIsGuarded(t *testing.T) {
	const token = "open sesame"
	closed, _ := runWorker(t, redistest.Run(t), "page: {token: "+token+"}\n")
	health := func(args ...string) (code int, said string) {
		var out output
		code = run(t.Context(), append([]string{"health", strings.TrimPrefix(closed, "http://")}, args...), cli.IO{Out: &out, Err: &out})
		return code, out.String()
	}
	if code, said := health("--ready"); code != 1 || !strings.Contains(said, "401: want the page's token") {
		t.Errorf("worker health --ready without the token: %d, %s", code, said)
	}
	t.Setenv("HEADGATE_PAGE_TOKEN", token)
	eventually(t, "health", func() bool { code, said := health("--ready"); return code == 0 && said == "ok\n" })
}

// TestHealthCommandOverTLS: the certificate of a worker on this machine is taken as it is.
func TestHealthCommandOverTLS(t *testing.T) {
	files, err := redistest.WriteCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at, _ := runWorker(t, redistest.Run(t), fmt.Sprintf("page: {tls_cert: %s, tls_key: %s}\n", files.Cert, files.Key))
	var said output
	if code := run(t.Context(), []string{"health", at}, cli.IO{Out: &said, Err: &said}); code != 0 || said.String() != "ok\n" {
		t.Errorf("worker health %s: %d, %s", at, code, said.String())
	}
}
