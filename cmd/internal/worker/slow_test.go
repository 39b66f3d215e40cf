package worker

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestSlowRedis_IsNoOutage: Redis is slow for 1.6 s ten times in a minute, while a worker has no job
// and is probed and scraped each second. Nothing says that Redis is down.
func TestSlowRedis_IsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var slowUntil atomic.Int64
		rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			time.Sleep(time.Until(time.Unix(0, slowUntil.Load())))
			return next(ctx, cmd)
		}))
		var said bytes.Buffer
		w, err := New(parse(t, limited), Options{Redis: rdb, Log: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(10 * time.Second)
		p, err := w.newPage(config.Page{})
		if err != nil {
			t.Fatal(err)
		}
		mux := newMux(w, p, true)
		get := func(path string) (int, string) {
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return answer.Code, answer.Body.String()
		}
		_, _ = get("/metrics")
		for second := range 60 {
			if second%6 == 0 {
				slowUntil.Store(time.Now().Add(1600 * time.Millisecond).UnixNano())
			}
			tick := time.After(time.Second)
			if status, text := get("/readyz"); status != http.StatusOK {
				t.Errorf("%d s: /readyz: %d %s", second, status, text)
			}
			_, text := get("/metrics")
			for _, want := range []string{`headgate_scope_up{scope="default"} 1`, `trouble="away"} 0`, "headgate_scope_dispatcher_alive"} {
				if !strings.Contains(text, want) {
					t.Errorf("%d s: the metrics have no %s", second, want)
				}
			}
			<-tick
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if strings.Contains(said.String(), "level=ERROR") || strings.Contains(said.String(), "level=WARN") {
			t.Errorf("it logs\n%s", said.String())
		}
	})
}

// TestEviction_UnknownKeepsAnswer: if Redis does not say whether it evicts keys, the last answer stays.
func TestEviction_UnknownKeepsAnswer(t *testing.T) {
	m, rdb := redistest.Mini(t)
	policy, failure := "allkeys-lru", error(nil)
	redistest.Before(m, func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "INFO" {
			c.WriteBulk("maxmemory_policy:" + policy + "\r\naof_enabled:0\r\n")
		}
		return cmd == "INFO"
	})
	rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if failure != nil {
			cmd.SetErr(failure)
			return failure
		}
		return next(ctx, cmd)
	}))
	var said bytes.Buffer
	w, err := New(parse(t, limited), Options{Redis: rdb, Log: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	w.redis = rdb
	w.checkSettings(t.Context())
	for _, failure = range []error{syscall.ECONNREFUSED, context.DeadlineExceeded} {
		w.checkSettings(t.Context())
		if text, _ := w.evictionText.Load().(string); text == "" {
			t.Errorf("after %v it forgets that Redis evicts keys", failure)
		}
		restart := func(ctx context.Context, rdb redis.UniversalClient) (string, error) {
			return restartWarning(ctx, rdb, "scope:")
		}
		for i, check := range []func(context.Context, redis.UniversalClient) (string, error){
			evictionWarning, restart, aofWarning, clockWarning, uncheckedWarning,
		} {
			if warning, err := check(t.Context(), rdb); err == nil {
				t.Errorf("%v: check %d of a worker's start says %q without an error", failure, i, warning)
			}
		}
	}
	failure, policy = nil, "noeviction"
	w.checkSettings(t.Context())
	if n := strings.Count(said.String(), "\n"); n != 2 || !strings.Contains(said.String(), "no longer evicts") {
		t.Errorf("it logs\n%swant a warning and its end", said.String())
	}
}
