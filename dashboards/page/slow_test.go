package page_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestSlowRedis: while Redis hangs, viewers can leave, and the page can be closed.
func TestSlowRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := miniFixture(t)
		var hangs atomic.Bool
		w.rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "time" && hangs.Load() {
				time.Sleep(time.Minute)
			}
			return next(ctx, cmd)
		}))
		for name, end := range map[string]func(*page.Page, func()){
			"who looks leaves":   func(_ *page.Page, leave func()) { leave() },
			"the page is closed": func(p *page.Page, _ func()) { w.must(p.Close()) },
		} {
			hangs.Store(false)
			p := w.page()
			ctx, leave := context.WithCancel(t.Context())
			ask(p, request("GET", "/", nil))
			time.Sleep(2 * time.Second)
			hangs.Store(true)
			var answered atomic.Bool
			go func() {
				ask(p, request("GET", "/", nil).WithContext(ctx))
				answered.Store(true)
			}()
			time.Sleep(time.Second)
			end(p, leave)
			synctest.Wait()
			if !answered.Load() {
				t.Errorf("%s, and a request still waits for Redis", name)
			}
			leave()
			time.Sleep(2 * time.Minute)
		}
	})
}
