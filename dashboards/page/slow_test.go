package page_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestSlowRedis_IsNotDown: while Redis is slow, the page shows the last snapshot. A page that could not
// be read in time says so, and says that Redis does not answer only if that is so.
func TestSlowRedis_IsNotDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var slow atomic.Int64
		var hangs, refuses atomic.Bool
		rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if refuses.Load() {
				return syscall.ECONNREFUSED
			}
			if hangs.Load() || cmd.Name() != "rpushx" { // the page makes many calls, and each is slow
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Duration(slow.Load())):
				}
			}
			return next(ctx, cmd)
		}))
		w := newFixture(t, rdb)
		p, err := page.New(w.options)
		w.must(err)
		get := func(within time.Duration) string {
			t.Helper()
			time.Sleep(time.Minute) // the last snapshot is old
			began, out := time.Now(), httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.Host, r.RemoteAddr = "localhost", "127.0.0.1:1"
			p.ServeHTTP(out, r)
			if took := time.Since(began); took > within {
				t.Errorf("the page took %s, want at most %s", took, within)
			}
			return out.Body.String()
		}
		const late, down = "This page could not be read in 5s; jobs run; this is as of ", "Redis does not answer; this is as of "
		wants := func(text, want string) {
			t.Helper()
			for _, message := range []string{late, down} {
				if strings.Contains(text, message) != (message == want) {
					t.Errorf("the page has %q: %v, want %q\n%s", message, message != want, want, text)
				}
			}
		}
		wants(get(time.Second), "")
		slow.Store(int64(2 * time.Second))
		wants(get(6*time.Second), late)
		hangs.Store(true)
		slow.Store(int64(time.Minute))
		wants(get(6*time.Second), down)
		hangs.Store(false)
		slow.Store(0)
		refuses.Store(true)
		wants(get(time.Second), down)
		refuses.Store(false)
		wants(get(time.Second), "")
		wants(get(time.Second), "")
	})
}
