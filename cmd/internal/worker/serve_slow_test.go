package worker

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestHTTPServer_ManyConnections: a client can open as many connections as it likes; the oldest
// give way, and whoever comes is answered.
func TestHTTPServer_ManyConnections(t *testing.T) {
	const more = 50
	here, err := Listen(t.Context(), ":0")
	if err != nil {
		t.Fatal(err)
	}
	server := HTTPServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	go server.Serve(here)
	defer server.Close()
	var conns []net.Conn
	for i := range maxConns + more {
		conn, err := net.Dial("tcp", here.Addr().String())
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	resp, err := http.Get("http://" + here.Addr().String())
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("beside %d connections: %v, %v", len(conns), resp, err)
	}
	defer resp.Body.Close()
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
		if _, err := io.WriteString(last, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
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

// TestHTTPServer_SlowReader: who does not read an answer loses the connection.
func TestHTTPServer_SlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer here.Close()
		conns := oneConn(make(chan net.Conn, 1))
		conns <- there
		failed := make(chan error, 1)
		server := HTTPServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
