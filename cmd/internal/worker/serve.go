package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/headgate/headgate/cmd/internal/api"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/dashboards/metrics"
	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/stats"
)

// maxScrapes bounds concurrent scrapes, because each scrape reads from Redis.
const maxScrapes = 4

// serveHTTP serves the page, the API, metrics and health until end is called.
func (w *Worker) serveHTTP(l net.Listener, who config.Page) (end func(), err error) {
	p, err := w.newPage(who)
	if err != nil {
		return nil, err
	}
	server := HTTPServer(newMux(w, p, who.OpenMetrics))
	server.ErrorLog = slog.NewLogLogger(w.log.Handler(), slog.LevelWarn)
	w.log.Info("listening", "address", "http://"+l.Addr().String())
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("metrics and health are no longer served", "error", err)
		}
	}()
	return func() { CloseServer(server) }, nil
}

// newMux routes the page, the API, metrics and health. /healthz is public. If metricsArePublic is false,
// /metrics and /readyz need the page's authentication, because they show names of limits and hosts.
func newMux(w *Worker, p *page.Page, metricsArePublic bool) *http.ServeMux {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(w.server, w.redis, metrics.Options{Schedules: w.cron}))
	scope := prometheus.Labels{"scope": w.config.Load().Scope}
	prometheus.WrapRegistererWith(scope, registry).MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_config_applied", Help: "1 if the last change of the config file was applied, 0 if it was not and the previous config stays in force.",
	}, func() float64 {
		if w.fileNotApplied.Load() {
			return 0
		}
		return 1
	}))
	guard := p.Guard
	if metricsArePublic {
		guard = func(h http.Handler) http.Handler { return h }
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "ok") })
	mux.Handle("GET /metrics", guard(scrapes(registry)))
	mux.Handle("GET /readyz", guard(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if err := w.ready(r.Context()); err != nil {
			http.Error(out, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(out, "ok")
		if text, _ := w.evictionText.Load().(string); text != "" {
			fmt.Fprintln(out, "but: "+text)
		}
		if state := stats.RecordersOf(w.server)[0].State(); state != stats.StateRunning {
			fmt.Fprintf(out, "but: %s, takes no new jobs\n", state)
		}
	})))
	c := w.startConfig
	mux.Handle(api.Prefix, &api.Handler{Token: string(c.API.Token), Config: w.config.Load, Client: c.NewClient(w.redis)})
	mux.Handle("/", p)
	return mux
}

func (w *Worker) newPage(p config.Page) (*page.Page, error) {
	return page.New(page.Options{
		Limiter: w.waitDB.Limiter, Log: w.log, Shards: w.config.Load().Shards(),
		KeyOf: func(limit string) (by string, known bool) {
			keys := w.config.Load().Tasks.KeysOf(limit)
			return cmp.Or(keys...), len(keys) > 0
		},
		NormalizeKey: func(limit, key string) (string, error) { return w.config.Load().Tasks.NormalizeKey(limit, key) },
		Token:        string(p.Token), HTTPS: p.HTTPS, ReadOnly: p.ReadOnly, Redact: p.Redact,
	})
}

// scrapes serves metrics. The TimeoutHandler buffers an answer, so a slow client does not count as a
// scrape while it reads.
func scrapes(from prometheus.Gatherer) http.Handler {
	scrape := promhttp.HandlerFor(from, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	return http.TimeoutHandler(scrape, answerTimeout, "")
}

// ready returns why the worker is not ready, in one line.
func (w *Worker) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := w.server.Ready(ctx); err != nil {
		switch why := redishealth.ProblemOf(err).Description(); {
		case why != "" && strings.HasSuffix(err.Error(), why):
			return errors.New("cannot use Redis: " + why)
		case !strings.Contains(err.Error(), why):
			return fmt.Errorf("cannot use Redis: %s: %w", why, err)
		}
		return fmt.Errorf("cannot use Redis: %w", err)
	}
	if w.fileNotApplied.Load() {
		return errors.New("the config file could not be applied and the previous config stays in force: see the log")
	}
	return nil
}

const (
	readyTimeout   = time.Second      // bounds the wait for the check of Redis; then /readyz answers by the last known state
	requestTimeout = 5 * time.Second  // bounds the time in which a client sends its request
	answerTimeout  = 30 * time.Second // bounds the time in which the server computes an answer and the client reads the answer
	idleTimeout    = time.Minute      // bounds the time of a connection without a request
	// closeTimeout bounds the time that requests have when the server stops.
	closeTimeout = 200 * time.Millisecond
)

// Listen listens at an address. An address without a host, such as :9090, is for this machine only.
// If the text is empty, the listener is nil.
func Listen(ctx context.Context, text string) (net.Listener, error) {
	address, err := config.ListenAddress(text)
	if err != nil {
		return nil, fmt.Errorf("--listen %w", err)
	}
	if address == "" {
		return nil, nil
	}
	var network net.ListenConfig
	l, err := network.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("--listen %s: the port is in use: want a free port, or :0 for any", text)
	}
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", text, err)
	}
	return netutil.LimitListener(l, maxConns), nil
}

// maxConns bounds the connections of a listener, because some systems allow a process only 256 file
// descriptors.
const maxConns = 100

// HTTPServer returns a server with timeouts. When its listener has maxConns connections, the server
// closes the one that has waited longest for a request, so that clients without requests do not keep others out.
func HTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ConnState: new(waitingConns).changed, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
	}
}

// waitingConns knows which connections of a server wait for a request.
type waitingConns struct {
	mu    sync.Mutex
	open  map[net.Conn]int // when the connection began to wait, as a value of turns; 0 during a request
	turns int
}

func (w *waitingConns) changed(conn net.Conn, to http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case to == http.StateNew && w.open == nil:
		w.open = map[net.Conn]int{}
		fallthrough
	case to == http.StateNew, to == http.StateIdle:
		w.turns++
		w.open[conn] = w.turns
	case to == http.StateActive:
		w.open[conn] = 0
	default:
		delete(w.open, conn)
	}
	if len(w.open) < maxConns {
		return
	}
	var longest net.Conn
	for conn, since := range w.open {
		if since > 0 && (longest == nil || since < w.open[longest]) {
			longest = conn
		}
	}
	if longest != nil {
		delete(w.open, longest)
		_ = longest.Close()
	}
}

// CloseServer stops a server. The current requests have closeTimeout to end.
func CloseServer(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}
