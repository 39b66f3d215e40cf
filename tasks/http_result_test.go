package tasks

import (
	"bytes"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestResultBody(t *testing.T) {
	full := strings.Repeat("x", DefaultResultBody)
	binary := bytes.Repeat([]byte{0xff, 0}, DefaultResultBody)
	tests := []struct {
		name, body string
		want       HTTPResult
	}{
		{"empty", "", HTTPResult{}},
		{"text", "<é&\x00>", HTTPResult{Body: "<é&\x00>"}},
		{"just fits", full, HTTPResult{Body: full}},
		{"one too many", full + "y", HTTPResult{Body: full, Truncated: true}},
		{"cut in a character", full[1:] + "é", HTTPResult{Body: full[1:], Truncated: true}},
		{"cut in a long character", full[3:] + "😀", HTTPResult{Body: full[3:], Truncated: true}},
		{"cut after a character", full[2:] + "éé", HTTPResult{Body: full[2:] + "é", Truncated: true}},
		{"binary", "\xff\xfe", HTTPResult{Body: "//4=", Base64: true}},
		{"text that ends in half a character", "a\xc3", HTTPResult{Body: "YcM=", Base64: true}},
		{
			"long binary", string(binary),
			HTTPResult{Body: base64.StdEncoding.EncodeToString(binary[:DefaultResultBody]), Base64: true, Truncated: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.body) })
			got, err := local().fetch(t, HTTPRequest{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Status, tt.want.Length = 200, int64(len(tt.body))
			if diff := cmp.Diff(&tt.want, got, cmpopts.IgnoreFields(HTTPResult{}, "DurationMS")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Connections are used again after bodies longer than what is kept.
func TestHTTP_ReusesConnections(t *testing.T) {
	var opened atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, DefaultResultBody+maxDrain/2))
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	h := local()
	for range 5 {
		if err := processBy(t, h, HTTPRequest{URL: srv.URL}); err != nil {
			t.Fatal(err)
		}
	}
	if got := opened.Load(); got != 1 {
		t.Errorf("5 calls opened %d connections, want 1", got)
	}
}
