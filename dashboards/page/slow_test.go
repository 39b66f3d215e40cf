package page_test

import (
	"bufio"
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
