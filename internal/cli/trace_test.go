package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
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

// A command exports its spans to the collector that the environment names, the
// last of them before it ends.
func TestTracesReachCollector(t *testing.T) {
	var got collector.ExportTraceServiceRequest
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/v1/traces" {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	var stderr bytes.Buffer
	var c traceCommand
	if code := Main(t.Context(), "worker", "", &c, &c.Globals, nil, IO{Out: io.Discard, Err: &stderr}); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	text := got.String()
	for _, want := range []string{`"work"`, `"service.name"`, `"headgate-worker"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the collector got %s: want %s in it", text, want)
		}
	}
}

func TestBadTraceSettings(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "pigeon")
			var stderr bytes.Buffer
			var c traceCommand
			code := Main(t.Context(), "worker", "", &c, &c.Globals, nil, IO{Out: io.Discard, Err: &stderr})
			if code != exitUsage || !strings.Contains(stderr.String(), name+`: "pigeon": want`) {
				t.Errorf("exit code %d: %s; want %d and a word about pigeon", code, &stderr, exitUsage)
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
		if got := traced(strings.Fields(test.environ)); got != test.want {
			t.Errorf("%q: %v", test.environ, got)
		}
	}
}
