package tasks

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
)

// pipe is a transport to a server in memory, which writes one answer.
func pipe(answer func(to net.Conn)) *http.Transport {
	return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			if _, err := http.ReadRequest(bufio.NewReader(server)); err == nil {
				answer(server)
			}
		}()
		return client, nil
	}}
}

// raw is a transport to a server whose answer is the text.
func raw(text string) *http.Transport {
	return pipe(func(to net.Conn) { _, _ = io.WriteString(to, text) })
}

// A body of a byte a second ends at the call's timeout.
func TestHTTP_SlowBody_TimesOut(t *testing.T) {
	drip := func(to net.Conn) {
		_, _ = io.WriteString(to, "HTTP/1.1 200 OK\r\n\r\n")
		for {
			if _, err := io.WriteString(to, "x"); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}
	for _, save := range []string{"", "page"} {
		h := saving(t)
		synctest.Test(t, func(t *testing.T) {
			transport := pipe(drip)
			h.Transport = transport
			start := time.Now()
			got, err := h.fetch(t, HTTPRequest{URL: "http://h/", Timeout: 20*time.Second + time.Millisecond, Save: save})
			if took := time.Since(start); took != 20*time.Second+time.Millisecond {
				t.Errorf("gave up after %s, want 20.001s", took)
			}
			if Class(err) != ClassNetwork || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want a NetworkError, deadline exceeded", err)
			}
			if !got.Truncated || got.Length != -1 || save == "" && got.Body != strings.Repeat("x", 21) {
				t.Errorf("result %+v, want the 21 bytes of 20 s, truncated, length unknown", got)
			}
			time.Sleep(2 * time.Second) // until the server has noticed the closed connection
		})
		if left := saved(t, h); len(left) > 0 {
			t.Errorf("the folder holds %q, want nothing", left)
		}
	}
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
			tt.call.URL = "http://h/"
			h := saving(t)
			var result *HTTPResult
			var err error
			synctest.Test(t, func(t *testing.T) {
				transport := pipe(func(to net.Conn) {
					_, _ = io.WriteString(to, tt.answer)
					_, _ = io.Copy(io.Discard, to) // holds the connection until the client closes it
				})
				h.Transport = transport
				start := time.Now()
				result, err = h.fetch(t, tt.call)
				if took := time.Since(start); took != map[string]time.Duration{ClassNetwork: DefaultTimeout}[tt.class] {
					t.Errorf("the call took %s", took)
				}
				transport.CloseIdleConnections()
			})
			if Class(err) != tt.class || tt.class == ClassNetwork && !strings.Contains(err.Error(), "no complete response within 30s") {
				t.Errorf("%v is of class %q, want %q", err, Class(err), tt.class)
			}
			if tt.class == "1xx" && (result == nil || result.Status != 101 || result.Body != "" || !strings.Contains(err.Error(), "answered 101 Switching Protocols, want any 2xx")) {
				t.Errorf("got %+v, %v; want the status alone", result, err)
			}
		})
	}
}

func TestHTTP_BrokenAnswers(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	tests := []struct{ name, answer, body, class string }{
		{"fine", ok + "Content-Length: 4\r\n\r\ntext", "text", ""},
		{"longer than it says", ok + "Content-Length: 2\r\n\r\ntext", "te", ""},
		{"shorter than it says", ok + "Content-Length: 9\r\n\r\ntext", "text", ClassNetwork},
		{"shorter, and another status", "HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\ntext", "text", Class5xx},
		{"two lengths", ok + "Content-Length: 4\r\nContent-Length: 2\r\n\r\ntext", "", ClassNetwork},
		{"a length below zero", ok + "Content-Length: -4\r\n\r\ntext", "", ClassNetwork},
		{"a length that is none", ok + "Content-Length: all\r\n\r\ntext", "", ClassNetwork},
		{"chunks that stop", ok + "Transfer-Encoding: chunked\r\n\r\n4\r\ntext\r\n", "text", ClassNetwork},
		{"chunks that are none", ok + "Transfer-Encoding: chunked\r\n\r\n4\r\ntext\r\nzz\r\n", "text", ClassNetwork},
		{"gzip that is none", ok + "Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\ntext", "", ClassNetwork},
		{"no HTTP", "\xff\xfe\x00garbage\r\n\r\n", "", ClassNetwork},
		{"nothing", "", "", ClassNetwork},
		{"endless header", ok + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 12_000), "", ClassNetwork},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transport := raw(tt.answer)
			defer transport.CloseIdleConnections()
			h := &HTTPHandler{Transport: transport}
			got, err := h.fetch(t, HTTPRequest{URL: "http://h/"})
			if Class(err) != tt.class || (err == nil) != (tt.class == "") || errors.Is(err, asynq.SkipRetry) {
				t.Errorf("got %v, want class %q", err, tt.class)
			}
			if got != nil && got.Body != tt.body || got == nil && tt.body != "" {
				t.Errorf("result %+v, want body %q", got, tt.body)
			}
			if err := h.ProcessTask(t.Context(), asynq.NewTask(TypeHTTPRequest, []byte(`{"url":"http://h/"}`))); err != nil && !utf8.ValidString(err.Error()) {
				t.Errorf("error %q is not UTF-8: asynq cannot write it down", err)
			}
		})
	}
}

// 64 MiB of zeros in 64 kB cost no more than the bound.
func TestHTTP_GzipBomb_IsCut(t *testing.T) {
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 64 {
		_, _ = w.Write(zeros)
	}
	_ = w.Close()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb.Bytes())
	})
	got, err := local().fetch(t, HTTPRequest{URL: url})
	if err != nil || len(got.Body) != DefaultResultBody || !got.Truncated || got.Length != -1 {
		t.Errorf("kept %d bytes, truncated %t, length %d, error %v; want the bound, true, -1", len(got.Body), got.Truncated, got.Length, err)
	}
}

func TestHTTP_NonUTF8(t *testing.T) {
	const latin = "caf\xe9"
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Name"] = []string{latin}
		w.Header()["Location"] = []string{"/" + latin}
		w.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(w, latin)
	})
	h := local()
	got, err := h.fetch(t, HTTPRequest{URL: url, KeepHeaders: []string{"X-Name"}})
	if want := base64.StdEncoding.EncodeToString([]byte(latin)); !got.Base64 || got.Body != want {
		t.Errorf("body %q, base64 %t; want %q, true", got.Body, got.Base64, want)
	}
	if text, err := marshal(got); err != nil || !utf8.Valid(text) || !bytes.Contains(text, []byte(`"X-Name":["caf\ufffd"]`)) {
		t.Errorf("result %s, %v; want it as UTF-8", text, err)
	}
	if err = presentable(err); err == nil || !utf8.ValidString(err.Error()) {
		t.Errorf("got %q, want an error in UTF-8", err)
	}
}

func TestPresentable(t *testing.T) {
	inner := errors.New(strings.Repeat("é", maxErrorText))
	got := presentable(inner)
	if !errors.Is(got, inner) || !utf8.ValidString(got.Error()) || len(got.Error()) > maxErrorText+10 {
		t.Errorf("an error of %d bytes: %d bytes, UTF-8 %t", len(inner.Error()), len(got.Error()), utf8.ValidString(got.Error()))
	}
	if short := errors.New("short"); presentable(short) != short || presentable(nil) != nil {
		t.Error("a short error, or none, is changed")
	}
}
