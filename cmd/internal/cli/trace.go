package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	exportTimeout = 10 * time.Second
	// flushTimeout is the longest time that a finished command waits for the export of its last spans.
	flushTimeout = 500 * time.Millisecond
)

// beginTraces records traces if OpenTelemetry's environment variables say so. end exports the last
// spans. An invalid variable is only a warning, because its author can be the platform.
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
func beginTraces(ctx context.Context, name string, stderr io.Writer) (end func()) {
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	off := exporter == "none" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true")
	if off || exporter+otlpSetting("ENDPOINT") == "" {
		return func() {}
	}
	traceWarning.Store(new(func(text string) { fmt.Fprintf(stderr, "%s: cannot export traces: %s\n", name, text) }))
	c, err := newCollector()
	if err == nil {
		end, err = c.exportSpans(ctx, name)
	}
	if err != nil {
		warnOfTraces(err)
		return func() {}
	}
	return end
}

// traceWarning prints the first error about traces. OpenTelemetry has one error handler for each
// process, so traceWarning is global.
var traceWarning atomic.Pointer[func(text string)]

func warnOfTraces(err error) {
	if warn := traceWarning.Swap(nil); warn != nil {
		(*warn)(strings.TrimPrefix(err.Error(), "traces export: "))
	}
}

// otlpSetting returns the variable OTEL_EXPORTER_OTLP_TRACES_name, or else OTEL_EXPORTER_OTLP_name.
func otlpSetting(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// collector sends spans to an OpenTelemetry collector with OTLP over HTTP. OpenTelemetry's own
// exporter would add gRPC to the command. If the collector rejects a batch, its spans are lost.
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/
type collector struct {
	url    string
	header http.Header
	client http.Client
}

func newCollector() (*collector, error) {
	if name := otlpSetting("PROTOCOL"); name != "" && name != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q: want http/protobuf, which collectors accept at port 4318", name)
	}
	c := &collector{header: http.Header{"Content-Type": {"application/x-protobuf"}, "User-Agent": {"headgate"}}}
	c.client.Timeout = exportTimeout
	c.url = os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if c.url == "" {
		c.url = strings.TrimSuffix(cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "http://localhost:4318"), "/") + "/v1/traces"
	}
	if u, err := url.Parse(c.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %q: want a URL such as http://localhost:4318", c.url)
	}
	for pair := range strings.SplitSeq(otlpSetting("HEADERS"), ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if strings.TrimSpace(pair) == "" {
			continue
		}
		if !ok || err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %q: want NAME=VALUE,NAME=VALUE", name)
		}
		c.header.Set(strings.TrimSpace(name), value)
	}
	return c, nil
}

// exportSpans exports traces to the collector until end is called.
func (c *collector) exportSpans(ctx context.Context, name string) (end func(), err error) {
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, err
	}
	service, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("headgate-"+name)), // OTEL_SERVICE_NAME replaces it
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(service))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(warnOfTraces))
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			warnOfTraces(err)
		}
	}, nil
}

// Start implements otlptrace.Client.
func (c *collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client.
func (c *collector) UploadTraces(ctx context.Context, batch []*spans.ResourceSpans) error {
	body, err := proto.Marshal(&spans.TracesData{ResourceSpans: batch}) // encoded like an export request
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = c.header
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s answered %s", c.url, resp.Status)
	}
	return nil
}
