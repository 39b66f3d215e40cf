package clitest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

type server struct {
	redis *redisServer

	mu       sync.Mutex
	paths    []string // of all calls
	robots   string   // what /robots.txt says
	released chan struct{}
}

func of(ts *testscript.TestScript) *server { return ts.Value("server").(*server) }

// api answers 200, on /slow only after release, on /status/N with N, on /say/N/TEXT
// with N and that text, on /to/PATH with a redirect to /PATH, on /busy with 429
// and a Retry-After of an hour, and on /robots.txt with the file, if one is named.
func api(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) <= 1, "api [ROBOTS]")
	s := of(ts)
	if len(args) == 1 {
		s.robots = ts.ReadFile(args[0])
	}
	s.released = make(chan struct{})
	srv := httptest.NewServer(s)
	ts.Defer(func() { srv.CloseClientConnections(); srv.Close() })
	ts.Setenv("API", srv.URL)
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.paths = append(s.paths, r.URL.Path)
	s.mu.Unlock()
	switch path := r.URL.Path; {
	case path == "/slow":
		select {
		case <-s.released:
		case <-r.Context().Done():
		}
	case path == "/robots.txt":
		_, _ = io.WriteString(w, s.robots)
	case path == "/busy":
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	case strings.HasPrefix(path, "/to/"):
		http.Redirect(w, r, strings.TrimPrefix(path, "/to"), http.StatusFound)
	case strings.HasPrefix(path, "/status/"):
		status, err := strconv.Atoi(strings.TrimPrefix(path, "/status/"))
		if err != nil {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
	case strings.HasPrefix(path, "/say/"):
		code, text, _ := strings.Cut(strings.TrimPrefix(path, "/say/"), "/")
		status, err := strconv.Atoi(code)
		if err != nil {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

func calls(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 1 || len(args) == 2), "calls N [PATH]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	until(ts, args[0]+" calls", func() bool { return of(ts).count(args[1:]) >= want })
	if got := of(ts).count(args[1:]); got != want {
		ts.Fatalf("%d calls, want %d", got, want)
	}
}

func (s *server) count(path []string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, p := range s.paths {
		if len(path) == 0 || p == path[0] {
			n++
		}
	}
	return n
}

func release(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "release")
	close(of(ts).released)
}
