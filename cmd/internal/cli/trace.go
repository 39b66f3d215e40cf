package cli

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/cmd/internal/config"
)

// flushTime is the longest time that a finished command waits for the export of its last spans.
const flushTime = 500 * time.Millisecond

// beginTraces records traces if OpenTelemetry's environment variables ask for them. end exports the
// remaining spans. Invalid settings, which often come from a platform, are a warning only.
// https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
func beginTraces(ctx context.Context, name string, stderr io.Writer) (end func()) {
	if !traced() {
		return func() {}
	}
	warn := traceErrors
	warn.sayTo(func(text string) { fmt.Fprintf(stderr, "%s: traces are not sent: %s\n", name, text) })
	to, err := newCollector()
	if err == nil {
		end, err = to.record(ctx, name, warn)
	}
	if err != nil {
		warn.Handle(err)
		return func() {}
	}
	return end
}

// record records traces for the collector until end is called.
func (c *collector) record(ctx context.Context, name string, warn *complaints) (end func(), err error) {
	c.ending, c.taken = make(chan struct{}), warn.over
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, err
	}
	service, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("headgate-"+name)), // OTEL_SERVICE_NAME comes later and wins
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(service))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	otel.SetErrorHandler(warn)
	return func() {
		close(c.ending)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			otel.Handle(err)
		}
	}, nil
}

// traced reports whether the environment asks for traces.
func traced() bool {
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	off := exporter == "none" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true")
	return !off && exporter+otlp("ENDPOINT") != ""
}

// complaints prints the first error of an outage of the collector.
type complaints struct {
	mu   sync.Mutex
	say  func(text string)
	said bool
}

// traceErrors is global, because OpenTelemetry has one error handler for each process.
var traceErrors = &complaints{}

func (c *complaints) sayTo(say func(text string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.say, c.said = say, false
}

func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.said {
		c.said = true
		c.say(strings.TrimPrefix(err.Error(), "traces export: "))
	}
}

// over ends the outage.
func (c *complaints) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = false
}

// collector exports spans with OTLP over HTTP. OpenTelemetry's own exporter would add gRPC to the
// command.
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/
type collector struct {
	url    string
	header http.Header
	gzip   bool
	client http.Client
	ending chan struct{} // closed when the command is done
	taken  func()        // called after a successful export
}

// otlp reads a setting for traces, or the one for all signals.
func otlp(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

func newCollector() (*collector, error) {
	if name := os.Getenv("OTEL_TRACES_EXPORTER"); name != "" && name != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER: %q: want otlp or none", name)
	}
	if name := otlp("PROTOCOL"); name != "" && name != "http/protobuf" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: %q: want http/protobuf, which collectors take at port 4318", name)
	}
	c := &collector{header: http.Header{"Content-Type": {"application/x-protobuf"}, "User-Agent": {"headgate"}}}
	c.url = os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if c.url == "" {
		c.url = strings.TrimSuffix(cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), "http://localhost:4318"), "/") + "/v1/traces"
	}
	if u, err := url.Parse(c.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %q: want a URL such as http://localhost:4318", c.url)
	}
	for pair := range strings.SplitSeq(otlp("HEADERS"), ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		switch {
		case strings.TrimSpace(pair) == "":
		case !ok || err != nil:
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %q: want NAME=VALUE,NAME=VALUE", name)
		default:
			c.header.Set(strings.TrimSpace(name), value)
		}
	}
	switch how := otlp("COMPRESSION"); how {
	case "", "none":
	case "gzip":
		c.gzip = true
		c.header.Set("Content-Encoding", how)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION: %q: want gzip or none", how)
	}
	ms, err := strconv.ParseUint(cmp.Or(otlp("TIMEOUT"), "10000"), 10, 31)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT: %q: want milliseconds, such as 10000", otlp("TIMEOUT"))
	}
	c.client.Timeout = time.Duration(ms) * time.Millisecond
	files := config.TLS{CA: otlp("CERTIFICATE"), Cert: otlp("CLIENT_CERTIFICATE"), Key: otlp("CLIENT_KEY")}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = files.Config(); err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY: %w", err)
	}
	c.client.Transport = transport
	return c, nil
}

func (c *collector) Start(context.Context) error { return nil }

func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// busyPause is the pause before a retry if a busy collector sends no Retry-After.
const busyPause = 5 * time.Second

// UploadTraces implements otlptrace.Client. It retries until the SDK ends ctx, and once more when the
// command is done.
func (c *collector) UploadTraces(ctx context.Context, of []*spans.ResourceSpans) error {
	body, err := proto.Marshal(&spans.TracesData{ResourceSpans: of}) // as an export request is written
	if err != nil {
		return err
	}
	if c.gzip {
		var small bytes.Buffer
		z := gzip.NewWriter(&small)
		_, _ = z.Write(body)
		_ = z.Close()
		body = small.Bytes()
	}
	for last := false; ; {
		select {
		case <-c.ending:
			last = true
		default:
		}
		pause, err := c.send(ctx, body)
		if err == nil {
			c.taken()
		}
		if pause == 0 || last {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-c.ending:
		case <-time.After(pause):
		}
	}
}

// send makes one call. The pause is zero if a retry is pointless.
func (c *collector) send(ctx context.Context, body []byte) (pause time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header = c.header
	resp, err := c.client.Do(req)
	if err != nil {
		return busyPause, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection stays
	if resp.StatusCode/100 == 2 {
		return 0, nil
	}
	err = fmt.Errorf("%s answered %s", c.url, resp.Status)
	if !slices.Contains([]int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, resp.StatusCode) {
		return 0, err
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return cmp.Or(time.Duration(max(0, min(seconds, 60)))*time.Second, busyPause), err
}
