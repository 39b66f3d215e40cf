package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// flushTime bounds how long a command that is done waits for its last spans to
// be exported.
const flushTime = 3 * time.Second

// beginTraces has the process record traces as OpenTelemetry's environment
// variables say, or not at all where there are none; end exports what is left.
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
func beginTraces(ctx context.Context, name string, stderr io.Writer) (end func(), err error) {
	if !traced(os.Environ()) {
		return func() {}, nil
	}
	if name := os.Getenv("OTEL_TRACES_EXPORTER"); name != "" && name != "otlp" {
		return nil, Usagef("OTEL_TRACES_EXPORTER: %q: want otlp or none", name)
	}
	if name := otlp("PROTOCOL"); name != "" && name != "http/protobuf" {
		return nil, Usagef("OTEL_EXPORTER_OTLP_PROTOCOL: %q: want http/protobuf, which collectors take at port 4318", name)
	}
	to, err := newCollector()
	if err != nil {
		return nil, Usagef("%w", err)
	}
	exporter, err := otlptrace.New(ctx, to)
	if err != nil {
		return nil, err
	}
	service, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("headgate-"+name)), // OTEL_SERVICE_NAME comes after, and wins
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(), resource.WithFromEnv())
	if err != nil {
		return nil, Usagef("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(service))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	otel.SetErrorHandler(&complaints{out: stderr, name: name})
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			otel.Handle(err)
		}
	}, nil
}

func traced(environ []string) bool {
	asked := false
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case name == "OTEL_SDK_DISABLED" && strings.EqualFold(value, "true"), name == "OTEL_TRACES_EXPORTER" && value == "none":
			return false
		case name == "OTEL_TRACES_EXPORTER", name == "OTEL_EXPORTER_OTLP_ENDPOINT", name == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":
			asked = asked || value != ""
		}
	}
	return asked
}

// complaints are the exporter's, one of a kind in a row: a collector that is
// away is not news each five seconds.
type complaints struct {
	out  io.Writer
	name string
	mu   sync.Mutex
	last string
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := err.Error(); text != c.last {
		c.last = text
		fmt.Fprintf(c.out, "%s: traces: %s\n", c.name, text)
	}
}
