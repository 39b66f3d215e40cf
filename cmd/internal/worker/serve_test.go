package worker

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// runWorker runs a worker of a config at a free port until the test ends, and returns
// where it listens and the path of its config.
func runWorker(t *testing.T, rdb *redistest.Server, text string) (url, path string) {
	t.Helper()
	url, path, _ = runLogged(t, rdb, text)
	return url, path
}

// runLogged is runWorker with what the worker logs.
func runLogged(t *testing.T, rdb *redistest.Server, text string) (url, path string, log *proctest.Log) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "headgate.yaml")
	proctest.Replace(t, path, text)
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
	log = new(proctest.Log)
	w, err := New(conf, Options{File: path, Text: []byte(text), Load: load, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	w.checkInterval = time.Second
	proctest.Start(t, log, w.Run)
	return log.URL(t), path, log
}

const limited = "limits: {api: {kind: sliding_log, rate: 20/s}}\n"

func TestHealth(t *testing.T) {
	t.Parallel()
	rdb := redistest.Run(t)
	url, config := runWorker(t, rdb, limited)
	want := func(path string, status int, text string) {
		t.Helper()
		proctest.Until(t, fmt.Sprint(path, " ", status, " ", text), func() (bool, any) {
			code, got := proctest.Get(t, url+path)
			return code == status && strings.Contains(got, text), fmt.Sprint(code, " ", got)
		})
	}
	want("/healthz", 200, "ok")
	want("/readyz", 200, "ok")
	want("/metrics", 200, `headgate_config_applied{scope="default"} 1`)
	want("/metrics", 200, `headgate_scope_up{scope="default"} 1`)
	if resp, err := http.Post(url+"/metrics", "", nil); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /metrics: %v, %v; want 405", resp, err)
	}
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("it listens at %s, want this machine only", url)
	}

	proctest.Replace(t, config, "limits: {api: {kind: wrong}}\n")
	want("/readyz", 503, "the config file could not be applied")
	want("/metrics", 200, `headgate_config_applied{scope="default"} 0`)
	want("/healthz", 200, "ok")
	proctest.Replace(t, config, limited+"tasks: {}\n")
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

// TestReady_Drained: a drained worker serves its page, so it stays ready, and says that it is drained.
func TestReady_Drained(t *testing.T) {
	rdb := redistest.Run(t)
	url, _ := runWorker(t, rdb, limited)
	waits := waitdb.New(throttle.New(rdb.Client(), throttle.Options{}))
	var all []stats.Process
	proctest.Until(t, "a worker", func() (bool, any) {
		var err error
		all, err = stats.ReadProcesses(t.Context(), rdb.Client(), "default")
		return len(all) > 0, err
	})
	if _, err := stats.Drain(t.Context(), waits, all...); err != nil {
		t.Fatal(err)
	}
	proctest.Until(t, "drained", func() (bool, any) {
		code, text := proctest.Get(t, url+"/readyz")
		return code == 200 && text == "ok\nbut: drained, takes no new jobs\n", text
	})
}

// TestIdleClients: clients that send nothing do not keep others out.
func TestIdleClients(t *testing.T) {
	l, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := HTTPServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "ok") }))
	server.ReadTimeout, server.ReadHeaderTimeout = 0, 0 // no client is closed for its time
	served := make(chan error)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	clients := make([]net.Conn, 2*maxConns)
	for i := range clients {
		if clients[i], err = new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer clients[i].Close()
	}
	if code, text := proctest.Get(t, "http://"+l.Addr().String()); code != 200 || text != "ok\n" {
		t.Errorf("got %d %q", code, text)
	}
}

// stuckWriter is the writer of an answer to a client that reads nothing until until is closed.
type stuckWriter struct {
	http.ResponseWriter
	writing chan<- struct{}
	until   <-chan struct{}
}

func (w stuckWriter) Write(b []byte) (int, error) {
	w.writing <- struct{}{}
	<-w.until
	return len(b), nil
}

// TestSlowScrapes: clients that do not read their answers do not keep others from metrics.
func TestSlowScrapes(t *testing.T) {
	metrics := scrapes(prometheus.NewRegistry())
	get := func(out http.ResponseWriter) {
		metrics.ServeHTTP(out, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	}
	writing, until := make(chan struct{}), make(chan struct{})
	var slow sync.WaitGroup
	for range maxScrapes + 1 {
		slow.Go(func() { get(stuckWriter{httptest.NewRecorder(), writing, until}) })
		<-writing
	}
	answer := httptest.NewRecorder()
	if get(answer); answer.Code != http.StatusOK {
		t.Errorf("beside clients that do not read: %d %s", answer.Code, answer.Body)
	}
	close(until)
	slow.Wait()
}

// TestMetrics_Guarded: metrics and readiness need the page's token, unless they are open. Liveness is
// public.
func TestMetrics_Guarded(t *testing.T) {
	rdb := redistest.Run(t)
	const token = "open sesame"
	closed, _ := runWorker(t, rdb, "page: {token: "+token+"}\n")
	alone, _ := runWorker(t, rdb, limited)
	open, _ := runWorker(t, rdb, "page: {token: "+token+", open_metrics: true}\n")
	for _, c := range []struct {
		name, url, host, authorization string
		guarded, alive                 int
	}{
		{"nothing shown", closed, "", "", 401, 200},
		{"the token", closed, "", "Bearer " + token, 200, 200},
		{"a wrong token", closed, "", "Bearer open sesam", 401, 200},
		{"the token under another name", closed, "metrics.example", "Bearer " + token, 200, 200},
		{"no token, from here", alone, "", "", 200, 200},
		{"no token, under a name that was made to lead here", alone, "evil.example", "", 403, 200},
		{"open", open, "metrics.example", "", 200, 200},
	} {
		for path, want := range map[string]int{"/metrics": c.guarded, "/readyz": c.guarded, "/healthz": c.alive} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = c.host
			r.Header.Set("Authorization", c.authorization)
			var resp *http.Response
			proctest.Until(t, "answer of "+path, func() (bool, any) {
				resp, err = http.DefaultClient.Do(r)
				return err == nil && resp.StatusCode != 503, err // until the worker is ready
			})
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want || want != 200 && (bytes.Contains(text, []byte("headgate_")) || bytes.Count(text, []byte("\n")) != 1) {
				t.Errorf("%s: %s: %d %s, want %d", c.name, path, resp.StatusCode, text, want)
			}
		}
	}
}

// TestTroubles_AreExplained: the log, /readyz and a metric explain a problem of Redis, and report its end.
func TestTroubles_AreExplained(t *testing.T) {
	troubles := []struct {
		trouble, logged, ready string
		makes, mends           string // commands, with semicolons between them
	}{
		{
			"out_of_memory", `why="its memory is full"`, "503 cannot use Redis: its memory is full\n",
			"CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0",
		},
		{
			"read_only", `why="it is a replica, which takes no writes"`, "503 cannot use Redis: it is a replica, which takes no writes\n",
			"REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE",
		},
		{
			"too_few_replicas", `why="it has fewer replicas than`, "503 cannot use Redis: it has fewer replicas",
			"CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0",
		},
		{
			"no_password", `why="it requires a password, and none is set"`, "503 cannot use Redis: it requires a password, and none is set: ",
			"ACL SETUSER default resetpass >another;CLIENT KILL TYPE normal SKIPME yes", "ACL SETUSER default nopass",
		},
		{
			"no_rights", `why="its user lacks rights" error="the Redis user default lacks rights that a worker needs: +hset +zadd: add`,
			"503 cannot use Redis: its user lacks rights: the Redis user default lacks rights that a worker needs: +hset +zadd: ",
			"ACL SETUSER default -zadd -hset", "ACL SETUSER default +zadd +hset",
		},
		{
			"evicts", `msg="Redis deletes jobs and limits when its memory is full, because its maxmemory-policy is allkeys-lru: have its operator set`, "200 ok\nbut: Redis deletes jobs and limits",
			"CONFIG SET maxmemory-policy allkeys-lru", "CONFIG SET maxmemory-policy noeviction",
		},
	}
	for _, tt := range troubles {
		t.Run(tt.trouble, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Run(t)
			admin := rdb.Client()
			defer admin.Close()
			url, _, log := runLogged(t, rdb, limited)
			wait := func(what string, active bool, ready string) {
				t.Helper()
				metric := map[bool]string{true: " 1\n", false: " 0\n"}[active]
				metric = fmt.Sprintf(`headgate_redis_trouble{scope="default",trouble=%q}`, tt.trouble) + metric
				proctest.Until(t, what, func() (bool, any) {
					status, answer := proctest.Get(t, url+"/readyz")
					_, metrics := proctest.Get(t, url+"/metrics")
					answer = fmt.Sprint(status, " ", answer)
					return strings.HasPrefix(answer, ready) && strings.Contains(metrics, metric), answer + metrics
				})
			}
			wait("start", false, "200 ok")
			redisDo(t, admin, tt.makes)
			wait("trouble", true, tt.ready)
			proctest.Until(t, "line in the log", func() (bool, any) { return strings.Contains(log.String(), tt.logged), log })
			redisDo(t, admin, tt.mends)
			wait("end", false, "200 ok")
			proctest.Until(t, "end in the log", func() (bool, any) {
				text := log.String()
				return strings.Contains(text, "Redis is back: jobs go on") || strings.Contains(text, "no longer evicts jobs and limits"), text
			})
			if n := strings.Count(log.String(), tt.logged); n != 1 {
				t.Errorf("logged %d times, want once:\n%s", n, log.String())
			}
			for _, other := range troubles {
				if other.trouble != tt.trouble && strings.Contains(log.String(), other.logged) {
					t.Errorf("also logged: %s\n%s", other.logged, log)
				}
			}
		})
	}
}
