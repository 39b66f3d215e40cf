package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

type traceCommand struct {
	Globals
}

func (traceCommand) Run(ctx context.Context) error {
	_, span := otel.Tracer("test").Start(ctx, "work")
	span.End()
	return nil
}

// traceOnce runs a command that makes a span.
func traceOnce(t *testing.T) (code int, said string) {
	t.Helper()
	var stderr bytes.Buffer
	var c traceCommand
	code = Main(t.Context(), "worker", "", &c, &c.Globals, nil, IO{Out: io.Discard, Err: &stderr})
	return code, stderr.String()
}

// A command exports its spans before it ends, with the settings of the environment: TLS, compression and
// headers.
func TestTracesReachCollector(t *testing.T) {
	var got spans.TracesData
	var sent http.Header
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sent = r.Header
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		text, err := io.ReadAll(body)
		if err == nil && r.URL.Path == "/v1/traces" {
			err = proto.Unmarshal(text, &got)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"ENDPOINT": server.URL, "CERTIFICATE": trusted, "COMPRESSION": "gzip", "HEADERS": "X-Tenant=a%20b, authorization=Bearer%20x",
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+name, value)
	}
	if code, said := traceOnce(t); code != 0 || said != "" {
		t.Fatalf("exit code %d: %s", code, said)
	}
	text := got.String()
	for _, want := range []string{`"work"`, `"service.name"`, `"headgate-worker"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the collector got %s: want %s in it", text, want)
		}
	}
	if sent.Get("X-Tenant") != "a b" || sent.Get("Authorization") != "Bearer x" || sent.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("the headers were %v", sent)
	}
}

// If the collector rejects spans, the command prints a warning and succeeds.
func TestTraces_Rejected(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL+"/here")
	want := "worker: traces are not sent: "
	if code, said := traceOnce(t); code != 0 || !strings.HasPrefix(said, want) || !strings.Contains(said, server.URL+"/here answered 404 Not Found") {
		t.Errorf("exit code %d: %s; want that it answered 404", code, said)
	}
}

// Invalid settings, or a collector that does not listen, are one warning. The command succeeds.
func TestTraces_InvalidSettings(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for setting, want := range map[string]string{
		"OTEL_SERVICE_NAME=x":                          "127.0.0.1:1: connect: connection refused",
		"OTEL_TRACES_EXPORTER=pigeon":                  `OTEL_TRACES_EXPORTER: "pigeon": want`,
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc":             `OTEL_EXPORTER_OTLP_PROTOCOL: "grpc": want http/protobuf`,
		"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317":   `: "collector:4317/v1/traces": want a URL`,
		"OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:4318":   `: "127.0.0.1:4318/v1/traces": want a URL`,
		"OTEL_EXPORTER_OTLP_HEADERS=pigeon":            `: "pigeon": want NAME=VALUE`,
		"OTEL_EXPORTER_OTLP_COMPRESSION=pigeon":        `: "pigeon": want gzip`,
		"OTEL_EXPORTER_OTLP_TIMEOUT=pigeon":            `: "pigeon": want milliseconds`,
		"OTEL_EXPORTER_OTLP_CERTIFICATE=pigeon":        ": open pigeon",
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=pigeon": ": open pigeon",
		"OTEL_RESOURCE_ATTRIBUTES=pigeon":              "OTEL_RESOURCE_ATTRIBUTES: ",
	} {
		t.Run(setting, func(t *testing.T) {
			name, value, _ := strings.Cut(setting, "=")
			t.Setenv(name, value)
			code, said := traceOnce(t)
			if code != 0 || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "worker: traces are not sent: ") || !strings.Contains(said, want) {
				t.Errorf("exit code %d: %s; want 0 and one line with %s", code, said, want)
			}
		})
	}
}

// transport is a collector as a function.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A command waits at its end for at most half a second, in virtual time.
func TestTracesDoNotDelay(t *testing.T) {
	answer := func(status int, header string) (*http.Response, error) {
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: http.NoBody, Header: http.Header{"Retry-After": {header}}}, nil
	}
	calls := 0
	for _, tt := range []struct {
		name      string
		collector transport
		runs      time.Duration // how long the command takes
		waits     time.Duration // for its last spans
		said      string
		calls     int
	}{
		{"there", func(*http.Request) (*http.Response, error) { return answer(200, "") }, 0, 0, "", 1},
		{"away", func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }, 0, 0, "refused", 1},
		{"away for a while", func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }, 12 * time.Second, 0, "refused", 3},
		{"busy", func(*http.Request) (*http.Response, error) { return answer(503, "9") }, 0, 0, "Service Unavailable", 1},
		{"busy at first", func(*http.Request) (*http.Response, error) {
			if calls == 1 {
				return answer(503, "2")
			}
			return answer(200, "")
		}, 20 * time.Second, 0, "", 2},
		{"silent", func(r *http.Request) (*http.Response, error) { <-r.Context().Done(); return nil, r.Context().Err() }, 0, 500 * time.Millisecond, "context deadline exceeded", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls = 0
				var said bytes.Buffer
				c := &collector{url: "http://collector/v1/traces", client: http.Client{Timeout: 10 * time.Second}}
				c.client.Transport = transport(func(r *http.Request) (*http.Response, error) { calls++; return tt.collector(r) })
				end, err := c.record(t.Context(), "worker", &complaints{say: func(text string) { fmt.Fprintln(&said, text) }})
				if err != nil {
					t.Fatal(err)
				}
				_, span := otel.Tracer("test").Start(t.Context(), "work")
				span.End()
				time.Sleep(tt.runs)
				done := time.Now()
				end()
				if took := time.Since(done); took != tt.waits {
					t.Errorf("it waits %s, want %s", took, tt.waits)
				}
				time.Sleep(time.Minute) // so that late calls are counted
				if lines := strings.Count(said.String(), "\n"); (tt.said == "") != (lines == 0) || lines > 1 || !strings.Contains(said.String(), tt.said) {
					t.Errorf("it says %q, want a line with %q", said.String(), tt.said)
				}
				if strings.Contains(said.String(), "traces export") {
					t.Errorf("it says %q, which repeats what failed", said.String())
				}
				if calls != tt.calls {
					t.Errorf("%d calls, want %d", calls, tt.calls)
				}
			})
		})
	}
}

func TestTraced(t *testing.T) {
	for _, test := range []struct {
		environ string
		want    bool
	}{
		{"", false},
		{"OTEL_SERVICE_NAME=x", false},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", true},
		{"OTEL_TRACES_EXPORTER=otlp", true},
		{"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", false},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://localhost:4318 OTEL_SDK_DISABLED=true", false},
	} {
		t.Run(test.environ, func(t *testing.T) {
			for _, name := range []string{"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
				t.Setenv(name, "")
			}
			for variable := range strings.FieldsSeq(test.environ) {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			if got := traced(); got != test.want {
				t.Errorf("%q: %v", test.environ, got)
			}
		})
	}
}
