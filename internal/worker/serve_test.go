package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// runWorker runs a worker of a config at a free port until the test ends, and returns
// where it listens and the path of its config.
func runWorker(t *testing.T, rdb *redistest.Server, text string) (url, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, path, text)
	load := func() (*config.Config, error) {
		c, err := config.Load(path)
		if err == nil {
			c.Listen = ":0"
			c.Redis, err = config.ParseRedisURL(rdb.URL())
		}
		return c, err
	}
	conf, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var log output
	w, err := New(conf, Options{File: path, Text: []byte(text), Load: load, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if <-ended; err != nil {
			t.Errorf("the worker ended with %v:\n%s", err, log.String())
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

// write replaces a file in one step: whoever watches it reads no half of it.
func write(t *testing.T, path, text string) {
	t.Helper()
	draft := path + ".new"
	if err := errors.Join(os.WriteFile(draft, []byte(text), 0o644), os.Rename(draft, path)); err != nil {
		t.Fatal(err)
	}
}

// asking is a connection that asks for a path until nothing more is taken from it, and
// reads nothing.
func asking(t *testing.T, address, path string) {
	t.Helper()
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1) })
	}}
	conn, err := small.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ask := strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\nX-Long: "+strings.Repeat("x", 4000)+"\r\n\r\n", 100)
	for {
		_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
		_, err := io.WriteString(conn, ask)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlowScrapes: clients that never read what they ask of /metrics keep nobody from
// reading it.
func TestSlowScrapes(t *testing.T) {
	url, _ := runWorker(t, redistest.Run(t), limited)
	for range maxScrapes + 1 {
		asking(t, strings.TrimPrefix(url, "http://"), "/metrics")
	}
	for range 10 {
		if code, text := get(t, url+"/metrics"); code != 200 {
			t.Fatalf("beside clients that do not read: %d %s", code, text)
		}
	}
}
