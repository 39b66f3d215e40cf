package page_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestSlowViewers: those who stop reading share what was made for them, and are
// dropped after a while; one who reads sees every turn meanwhile.
func TestSlowViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := miniWorld(t)
		w.options.Token = "open sesame"
		for i := range 50 {
			w.must(w.limiter.Define(t.Context(), throttle.Limit{Name: fmt.Sprint("limit-", i), Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}))
		}
		p := w.page()
		conns := make(pipes)
		server := &http.Server{Handler: p}
		served := make(chan error)
		go func() { served <- server.Serve(conns) }()

		good := conns.look(t)
		var turns atomic.Int64
		go func() {
			for lines := bufio.NewScanner(good); lines.Scan(); {
				if lines.Text() == "event: status" {
					turns.Add(1)
				}
			}
		}()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		before := memory()
		var slow []net.Conn
		for range 200 {
			slow = append(slow, conns.look(t))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := p.Viewers(); n != 201 {
			t.Errorf("%d look, want 201", n)
		}
		if held := memory() - before; held > 200*50<<10 {
			t.Errorf("200 slow viewers hold %d kB: want less than 50 kB for each, whose page has more", held>>10)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if n := p.Viewers(); n != 1 {
			t.Errorf("%d look after 11 s in which 200 read nothing, want 1", n)
		}
		for _, conn := range slow {
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Fatalf("a slow viewer's connection: %v, want its end", err)
			}
		}
		if n := turns.Load(); n < 15 {
			t.Errorf("one who reads saw %d turns in 16 s", n)
		}
		w.must(p.Close())
		w.must(server.Close())
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// memory is what the program holds, in bytes.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// pipes is a listener whose connections hold nothing that is not read.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// look is the connection of one more who looks.
func (p pipes) look(t *testing.T) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { _ = here.Close() })
	p <- there
	const request = "GET /events?of= HTTP/1.1\r\nHost: headgate.example\r\nAuthorization: Bearer open sesame\r\n\r\n"
	if _, err := io.WriteString(here, request); err != nil {
		t.Fatal(err)
	}
	return here
}

// TestSlowRedis: while Redis does not answer who looks can leave, a page can be closed, and
// what was read just before is shown.
func TestSlowRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := miniWorld(t)
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
			go ask(p, request("GET", "/events?of=", nil).WithContext(ctx))
			time.Sleep(time.Second / 2)
			hangs.Store(true)
			time.Sleep(time.Second * 3 / 4)
			end(p, leave)
			synctest.Wait()
			if n := p.Viewers(); n != 0 {
				t.Fatalf("%s, and %d look", name, n)
			}
			if start := time.Now(); ask(p, request("GET", "/", nil)).StatusCode != 200 || time.Since(start) > 0 {
				t.Errorf("%s: a page is there after %s, want at once", name, time.Since(start))
			}
			leave()
			time.Sleep(2 * time.Minute)
		}
	})
}
