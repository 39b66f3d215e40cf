package clitest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

type redisServer struct {
	plain  *redistest.Server // nil for sentinel and cluster
	client redis.UniversalClient
	url    string
}

func redisCommand(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) <= 1, "redis [KIND|stop|restart|full|roomy|unrefused]")
	kind := strings.Join(append(args, "plain")[:1], "")
	s := of(ts)
	switch kind {
	case "stop":
		ts.Check(s.redis.plain.Stop())
		return
	case "restart":
		ts.Check(s.redis.plain.Restart())
		return
	case "unrefused":
		if refused := s.redis.refusals("page"); len(refused) > 0 {
			ts.Fatalf("of Redis the page was refused %q", refused)
		}
		return
	case "full", "roomy":
		bytes := map[string]string{"full": "1", "roomy": "0"}[kind] // 0 is as much as there is
		ts.Check(s.redis.client.ConfigSet(context.Background(), "maxmemory", bytes).Err())
		return
	}
	s.redis = start(ts, kind)
	ts.Defer(func() {
		refused := s.redis.refusals("worker")
		_ = s.redis.client.Close()
		if len(refused) > 0 {
			ts.Fatalf("of Redis the worker was refused %q", refused)
		}
	})
	ts.Setenv("REDIS", s.redis.url)
}

// tb is a script as a test that starts servers.
type tb struct{ *testscript.TestScript }

func (tb) Helper() {}

func (t tb) Cleanup(f func()) { t.Defer(f) }

func start(ts *testscript.TestScript, kind string) *redisServer {
	t := tb{ts}
	plain := func(s *redistest.Server) *redisServer { return &redisServer{s, s.Client(), s.URL()} }
	switch kind {
	case "plain":
		return startLocked(ts)
	case "durable":
		return startLocked(ts, "--appendonly", "yes", "--appendfsync", "always")
	case "evicting":
		return plain(redistest.Run(t, "--maxmemory-policy", "allkeys-lru"))
	case "tls":
		s := redistest.RunTLS(t)
		ts.Setenv("SSL_CERT_FILE", s.Certificates().CA)
		return plain(s)
	case "mtls":
		s := redistest.RunTLS(t, "--tls-auth-clients", "yes")
		ts.Setenv("CERTIFICATES", filepath.Dir(s.Certificates().CA))
		return plain(s)
	case "sentinel":
		s := redistest.RunSentinel(t)
		return &redisServer{nil, s.Client(), "redis-sentinel://" + s.Watcher.Addr() + "/" + redistest.PrimaryName}
	case "cluster":
		c := redistest.RunCluster(t)
		return &redisServer{nil, c.Client(), "redis-cluster://" + strings.Join(c.Options().Addrs, ",")}
	}
	ts.Fatalf("no kind of Redis: %s", kind)
	return nil
}

func jobs(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 2 || len(args) == 3), "jobs STATE N [QUEUE]")
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	queue := append(args, "default")[2]
	inspector := asynq.NewInspectorFromRedisClient(of(ts).redis.client)
	got := -1
	until(ts, args[1]+" jobs "+args[0], func() bool {
		info, err := inspector.GetQueueInfo(queue)
		if err != nil {
			info = &asynq.QueueInfo{} // there is no such queue yet
		}
		got = map[string]int{
			"pending": info.Pending, "active": info.Active, "scheduled": info.Scheduled,
			"retry": info.Retry, "archived": info.Archived, "completed": info.Completed, "any": info.Size,
		}[args[0]]
		return got == want
	})
}

// startLocked starts a Redis with the users that an operator is told to make, for
// whatever scope, and sets $REDIS to its URL as the worker's, and $REDIS_ENQUEUE and
// $REDIS_PAGE as the others.
func startLocked(ts *testscript.TestScript, args ...string) *redisServer {
	s, users := redistest.RunWithUsers(tb{ts}, "../../docs/operating.md", "*", args...)
	for name := range users {
		ts.Setenv("REDIS_"+strings.ToUpper(name), users.URLAs(name, s))
	}
	return &redisServer{s, s.Client(), users.URLAs("worker", s)}
}

// refusals are what a user wanted of Redis and had no right to.
func (r *redisServer) refusals(user string) (all []string) {
	if r.plain == nil {
		return nil
	}
	entries, err := r.client.ACLLog(context.Background(), 128).Result()
	if err != nil {
		return nil // the script has stopped it
	}
	for _, e := range entries {
		if e.Username == user {
			all = append(all, fmt.Sprint(e.Reason, " ", e.Context, " ", e.Object))
		}
	}
	return all
}

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
	case strings.HasPrefix(path, "/status/"), strings.HasPrefix(path, "/say/"):
		code, text, _ := strings.Cut(path[strings.Index(path[1:], "/")+2:], "/")
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
