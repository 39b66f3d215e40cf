package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/redistest"
)

// asking is a connection that asks for a path until nothing more is taken from it, and
// reads nothing.
func asking(t *testing.T, address, path string) {
	t.Helper()
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1) })
	}}
	conn, err := small.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ask := strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\nX-Long: "+strings.Repeat("x", 4000)+"\r\n\r\n", 100)
	for {
		_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
		_, err := io.WriteString(conn, ask)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlowScrapes: clients that never read what they ask of /metrics keep nobody from
// reading it.
func TestSlowScrapes(t *testing.T) {
	url, _ := runWorker(t, redistest.Run(t), limited)
	for range maxScrapes + 1 {
		asking(t, strings.TrimPrefix(url, "http://"), "/metrics")
	}
	for range 10 {
		if code, text := get(t, url+"/metrics"); code != 200 {
			t.Fatalf("beside clients that do not read: %d %s", code, text)
		}
	}
}

// TestManyConnections: a client can open as many connections as it likes; the oldest
// give way, and whoever comes is answered.
func TestManyConnections(t *testing.T) {
	const more = 50
	url, _ := runWorker(t, redistest.Run(t), limited)
	var conns []net.Conn
	for i := range maxConns + more {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /assets/uplot.js HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	if code, text := get(t, url+"/healthz"); code != 200 {
		t.Fatalf("beside %d connections: %d %s", len(conns), code, text)
	}
	for i, conn := range conns[:more] {
		_ = conn.SetReadDeadline(time.Now().Add(idleTimeout / 2)) // by then it would be open for being idle
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of %d is still open", i, len(conns))
		}
	}
	last := conns[len(conns)-1]
	in := bufio.NewReader(last)
	for range 2 {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("the last connection: %v", err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(last, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// oneConn is a listener with one connection.
type oneConn chan net.Conn

func (l oneConn) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (l oneConn) Close() error   { close(l); return nil }
func (l oneConn) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// TestReadsNothing: who does not read an answer loses the connection.
func TestReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		conns := oneConn(make(chan net.Conn, 1))
		conns <- there
		failed := make(chan error, 1)
		server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 1<<20))
			failed <- err
		}))
		go server.Serve(conns)
		defer server.Close()
		start := time.Now()
		if _, err := io.WriteString(here, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != answerTimeout {
			t.Errorf("%v after %s, want the end of its time", err, time.Since(start))
		}
	})
}
