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

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

type redisServer struct {
	standalone *redistest.Server // nil for sentinel and cluster
	client     redis.UniversalClient
	url        string
}

func redisCommand(ts *testscript.TestScript, neg bool, args []string) {
	requireUsage(ts, !neg && len(args) <= 1, "redis [KIND|stop|restart|full|unlimited|no-denials]")
	kind := strings.Join(append(args, "plain")[:1], "")
	s := serverOf(ts)
	switch kind {
	case "stop":
		ts.Check(s.redis.standalone.Stop())
		return
	case "restart":
		ts.Check(s.redis.standalone.Restart())
		return
	case "no-denials":
		if refused := s.redis.denials("page"); len(refused) > 0 {
			ts.Fatalf("Redis has denied commands of the ACL user \"page\": %q", refused)
		}
		return
	case "full", "unlimited":
		bytes := map[string]string{"full": "1", "unlimited": "0"}[kind]
		ts.Check(s.redis.client.ConfigSet(context.Background(), "maxmemory", bytes).Err())
		return
	}
	s.redis = start(ts, kind)
	ts.Defer(func() {
		refused := s.redis.denials("worker")
		_ = s.redis.client.Close()
		if len(refused) > 0 {
			ts.Fatalf("Redis has denied commands of the ACL user \"worker\": %q", refused)
		}
	})
	ts.Setenv("REDIS", s.redis.url)
}

// tb adapts a script to redistest, which starts servers for tests.
type tb struct{ *testscript.TestScript }

func (tb) Helper() {}

func (t tb) Cleanup(f func()) { t.Defer(f) }

func start(ts *testscript.TestScript, kind string) *redisServer {
	t := tb{ts}
	var s *redistest.Server
	switch kind {
	case "plain":
		return startWithUsers(ts)
	case "durable":
		return startWithUsers(ts, "--appendonly", "yes", "--appendfsync", "always")
	case "evicting":
		s = redistest.Run(t, "--maxmemory-policy", "allkeys-lru")
	case "tls":
		s = redistest.RunTLS(t)
		ts.Setenv("SSL_CERT_FILE", s.Certificates().CA)
	case "mtls":
		s = redistest.RunTLS(t, "--tls-auth-clients", "yes")
		ts.Setenv("CERTIFICATES", filepath.Dir(s.Certificates().CA))
	case "sentinel":
		s := redistest.RunSentinel(t)
		return &redisServer{nil, s.Client(), "redis-sentinel://" + s.Watcher.Addr() + "/" + redistest.PrimaryName}
	case "cluster":
		c := redistest.RunCluster(t)
		return &redisServer{nil, c.Client(), "redis-cluster://" + strings.Join(c.Options().Addrs, ",")}
	default:
		ts.Fatalf("unknown kind of Redis: %s", kind)
	}
	return &redisServer{s, s.Client(), s.URL()}
}

func jobs(ts *testscript.TestScript, neg bool, args []string) {
	requireUsage(ts, !neg && (len(args) == 2 || len(args) == 3), "jobs STATE N [QUEUE]")
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	queue := append(args, "default")[2]
	inspector := asynq.NewInspectorFromRedisClient(serverOf(ts).redis.client)
	proctest.Until(ts, fmt.Sprint(want, " jobs ", args[0]), func() (bool, any) {
		info, err := inspector.GetQueueInfo(queue)
		if err != nil {
			info = &asynq.QueueInfo{} // there is no such queue yet
		}
		got := map[string]int{
			"pending": info.Pending, "active": info.Active, "scheduled": info.Scheduled,
			"retry": info.Retry, "archived": info.Archived, "completed": info.Completed, "any": info.Size,
		}[args[0]]
		return got == want, got
	})
}

// startWithUsers starts a Redis with the ACL users of docs/operating.md, but lets the users use all
// scopes. It sets $REDIS_WORKER, $REDIS_ENQUEUE and $REDIS_PAGE to the users' URLs.
func startWithUsers(ts *testscript.TestScript, args ...string) *redisServer {
	s, users := redistest.RunWithUsers(tb{ts}, "../../docs/operating.md", "*", args...)
	for name := range users {
		ts.Setenv("REDIS_"+strings.ToUpper(name), users.URLAs(name, s))
	}
	return &redisServer{s, s.Client(), users.URLAs("worker", s)}
}

// denials returns the commands that Redis has denied to a user.
func (r *redisServer) denials(user string) (all []string) {
	if r.standalone == nil {
		return nil
	}
	entries, err := r.client.ACLLog(context.Background(), 128).Result()
	if err != nil {
		return nil // the script has stopped Redis
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
	paths    []string // paths of all calls
	robots   string   // content of /robots.txt
	released chan struct{}
}

func serverOf(ts *testscript.TestScript) *server { return ts.Value("server").(*server) }

// api starts a server that responds to
//
//	/slow        after release
//	/status/N    with status N
//	/say/N/TEXT  with status N and TEXT
//	/to/PATH     with a redirect to /PATH
//	/busy        with 429 and a Retry-After of an hour
//	/robots.txt  with the file ROBOTS
//	others       with 200
func api(ts *testscript.TestScript, neg bool, args []string) {
	requireUsage(ts, !neg && len(args) <= 1, "api [ROBOTS]")
	s := serverOf(ts)
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
	requireUsage(ts, !neg && (len(args) == 1 || len(args) == 2), "calls N [PATH]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	proctest.Until(ts, args[0]+" calls", func() (bool, any) { got := serverOf(ts).count(args[1:]); return got >= want, got })
	if got := serverOf(ts).count(args[1:]); got != want {
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
	requireUsage(ts, !neg && len(args) == 0, "release")
	close(serverOf(ts).released)
}
