package tasks

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// holding returns the URL of a server that answers each connection with a text, and keeps it open until
// the test ends.
func holding(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, text)
			}
		}
	}()
	return "http://" + l.Addr().String()
}

// A server that keeps the connection open holds no call beyond its timeout. A switch of the protocol is
// no response, whether the call asked for it or not.
func TestHTTP_HeldConnection_TimesOut(t *testing.T) {
	const switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\nhello"
	upgrade := map[string]string{"Connection": "Upgrade", "Upgrade": "other"}
	for _, tt := range []struct {
		name, answer, class string
		call                HTTPRequest
	}{
		{"101", switched, "1xx", HTTPRequest{}},
		{"101 that was asked for", switched, "1xx", HTTPRequest{Headers: upgrade}},
		{"101, and a wish to wait", strings.Replace(switched, "\r\n", "\r\nRetry-After: 5\r\n", 1), "1xx", HTTPRequest{}},
		{"101, to be saved", switched, "1xx", HTTPRequest{Save: "x"}},
		{"103", "HTTP/1.1 103 Early Hints\r\n\r\n", ClassNetwork, HTTPRequest{}},
		{"a body without end", "HTTP/1.1 200 OK\r\n\r\nbody", ClassNetwork, HTTPRequest{}},
		{"a tunnel", "HTTP/1.1 200 OK\r\n\r\n", ClassNetwork, HTTPRequest{Method: "CONNECT"}},
		{"nothing", "", ClassNetwork, HTTPRequest{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.call.URL, tt.call.Timeout = holding(t, tt.answer), 100*time.Millisecond
			if tt.class == "1xx" {
				tt.call.Timeout = time.Hour // the timeout does not matter
			}
			h := local()
			h.SaveDir = t.TempDir()
			result, err := h.fetch(t, tt.call)
			if Class(err) != tt.class || tt.class == ClassNetwork && !strings.Contains(err.Error(), "no complete response within 100ms") {
				t.Errorf("%v is of class %q, want %q", err, Class(err), tt.class)
			}
			if tt.class == "1xx" && (result == nil || result.Status != 101 || result.Body != "" || !strings.Contains(err.Error(), "answered 101 Switching Protocols, want any 2xx")) {
				t.Errorf("got %+v, %v; want the status alone", result, err)
			}
		})
	}
}
