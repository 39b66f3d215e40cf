package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// A command exports its spans to the collector that the environment names, the
// last of them before it ends, by TLS, compressed and with headers where it is told so; and
// again where the collector is busy.
func TestTracesReachCollector(t *testing.T) {
	var got spans.TracesData
	var sent http.Header
	calls := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
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

// What a collector refuses is said, and no reason for the command to fail.
func TestTracesThatAreRefused(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", server.URL+"/here")
	want := "worker: traces: "
	if code, said := traceOnce(t); code != 0 || !strings.HasPrefix(said, want) || !strings.Contains(said, server.URL+"/here answered 404 Not Found") {
		t.Errorf("exit code %d: %s; want that it answered 404", code, said)
	}
}

func TestBadTraceSettings(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
	for name, want := range map[string]string{
		"OTEL_TRACES_EXPORTER": `: "pigeon": want`, "OTEL_EXPORTER_OTLP_PROTOCOL": `: "pigeon": want`,
		"OTEL_EXPORTER_OTLP_ENDPOINT": `: "pigeon/v1/traces": want a URL`, "OTEL_EXPORTER_OTLP_HEADERS": `: "pigeon": want NAME=VALUE`,
		"OTEL_EXPORTER_OTLP_COMPRESSION": `: "pigeon": want gzip`, "OTEL_EXPORTER_OTLP_TIMEOUT": `: "pigeon": want milliseconds`,
		"OTEL_EXPORTER_OTLP_CERTIFICATE": ": open pigeon", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": ": open pigeon",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "pigeon")
			if code, said := traceOnce(t); code != int(BadInput) || !strings.Contains(said, name+want) {
				t.Errorf("exit code %d: %s; want %d and a word about pigeon", code, said, BadInput)
			}
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
