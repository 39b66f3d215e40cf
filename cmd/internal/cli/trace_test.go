package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace/noop"
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

// A command exports its spans before it ends, with the headers of the environment.
func TestTraces_ReachCollector(t *testing.T) {
	var got spans.TracesData
	var sent http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sent = r.Header
		text, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/v1/traces" {
			err = proto.Unmarshal(text, &got)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Tenant=a%20b, authorization=Bearer%20x")
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
	want := "worker: cannot export traces: "
	if code, said := traceOnce(t); code != 0 || !strings.HasPrefix(said, want) || !strings.Contains(said, server.URL+"/here answered 404 Not Found") {
		t.Errorf("exit code %d: %s; want that it answered 404", code, said)
	}
}

// Invalid settings, or a collector that does not listen, are one warning. The command succeeds.
func TestTraces_InvalidSettings(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for setting, want := range map[string]string{
		"OTEL_SERVICE_NAME=x":                        "127.0.0.1:1: connect: connection refused",
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc":           `OTEL_EXPORTER_OTLP_PROTOCOL: "grpc": want http/protobuf`,
		"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317": `: "collector:4317/v1/traces": want a URL`,
		"OTEL_EXPORTER_OTLP_HEADERS=pigeon":          `: "pigeon": want NAME=VALUE`,
		"OTEL_RESOURCE_ATTRIBUTES=pigeon":            "OTEL_RESOURCE_ATTRIBUTES: ",
	} {
		t.Run(setting, func(t *testing.T) {
			name, value, _ := strings.Cut(setting, "=")
			t.Setenv(name, value)
			code, said := traceOnce(t)
			if code != 0 || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "worker: cannot export traces: ") || !strings.Contains(said, want) {
				t.Errorf("exit code %d: %s; want 0 and one line with %s", code, said, want)
			}
		})
	}
}

// A command that ends waits at most half a second for a collector that does not reply.
func TestTraces_DoNotDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var printed string
		traceWarning.Store(new(func(text string) { printed += text + "\n" }))
		c := &collector{url: "http://collector/v1/traces", client: http.Client{Transport: silent{}, Timeout: exportTimeout}}
		end, err := c.exportSpans(t.Context(), "worker")
		if err != nil {
			t.Fatal(err)
		}
		_, span := otel.Tracer("test").Start(t.Context(), "work")
		span.End()
		began := time.Now()
		end()
		if took := time.Since(began); took != flushTimeout || strings.Count(printed, "\n") != 1 || !strings.Contains(printed, "context deadline exceeded") {
			t.Errorf("it waited %s and printed %q", took, printed)
		}
		time.Sleep(time.Minute) // the export ends
	})
}

// silent is a collector that does not reply.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Traces are recorded only if an exporter or an endpoint is set.
func TestTraces_Off(t *testing.T) {
	for _, environ := range []string{
		"OTEL_SERVICE_NAME=x", "OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1 OTEL_SDK_DISABLED=true",
	} {
		t.Run(environ, func(t *testing.T) {
			for variable := range strings.FieldsSeq(environ) {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			otel.SetTracerProvider(noop.NewTracerProvider())
			if code, said := traceOnce(t); code != 0 || said != "" {
				t.Errorf("exit code %d: %s", code, said)
			}
		})
	}
}
