package clitest

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/internal/redistest"
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
	var closer io.Closer
	s.redis, closer = start(ts, kind)
	ts.Defer(func() {
		refused := s.redis.refusals("worker")
		_ = s.redis.client.Close()
		_ = closer.Close()
		if len(refused) > 0 {
			ts.Fatalf("of Redis the worker was refused %q", refused)
		}
	})
	ts.Setenv("REDIS", s.redis.url)
}

func start(ts *testscript.TestScript, kind string) (*redisServer, io.Closer) {
	switch kind {
	case "plain":
		return startLocked(ts)
	case "durable":
		return startLocked(ts, "--appendonly", "yes", "--appendfsync", "always")
	case "evicting":
		s, err := redistest.Start("--maxmemory-policy", "allkeys-lru")
		ts.Check(err)
		return &redisServer{s, s.Client(), s.URL()}, s
	case "tls":
		s, err := redistest.StartTLS()
		ts.Check(err)
		ts.Setenv("SSL_CERT_FILE", s.Certificates().CA)
		return &redisServer{s, s.Client(), s.URL()}, s
	case "mtls":
		s, err := redistest.StartTLS("--tls-auth-clients", "yes")
		ts.Check(err)
		ts.Setenv("CERTIFICATES", filepath.Dir(s.Certificates().CA))
		return &redisServer{s, s.Client(), s.URL()}, s
	case "sentinel":
		s, err := redistest.StartSentinel()
		ts.Check(err)
		return &redisServer{nil, s.Client(), "redis-sentinel://" + s.Watcher.Addr() + "/" + redistest.PrimaryName}, s
	case "cluster":
		c, err := redistest.StartCluster()
		ts.Check(err)
		return &redisServer{nil, c.Client(), "redis-cluster://" + strings.Join(c.Options().Addrs, ",")}, c
	}
	ts.Fatalf("no kind of Redis: %s", kind)
	return nil, nil
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
func startLocked(ts *testscript.TestScript, args ...string) (*redisServer, io.Closer) {
	s, users, err := redistest.StartWithUsers("../../docs/operating.md", "*", args...)
	ts.Check(err)
	for name := range users {
		ts.Setenv("REDIS_"+strings.ToUpper(name), users.URLAs(name, s))
	}
	return &redisServer{s, s.Client(), users.URLAs("worker", s)}, s
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
