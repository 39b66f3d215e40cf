package worker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/dashboards/metrics"
	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/scheduler"
)

// maxScrapes bounds concurrent scrapes, because each reads from Redis.
const maxScrapes = 4

// serveHTTP serves the page, metrics and health until end is called.
func (w *Worker) serveHTTP(l net.Listener, who config.Page) (end func(), err error) {
	url := "http://" + l.Addr().String()
	if who.TLSCert != "" {
		shown, err := NewCertificate(who.TLSCert, who.TLSKey)
		if err != nil {
			return nil, err
		}
		// Without HTTP/2 a client has one request at a time on a connection.
		l = tls.NewListener(l, &tls.Config{GetCertificate: shown, NextProtos: []string{"http/1.1"}})
		url = "https://" + l.Addr().String()
	}
	p, err := w.newPage(who)
	if err != nil {
		return nil, err
	}
	server := HTTPServer(newMux(w, p, who.OpenMetrics))
	server.ErrorLog = slog.NewLogLogger(w.log.Handler(), slog.LevelWarn)
	w.log.Info("listening", "address", url)
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("metrics and health are no longer served", "error", err)
		}
	}()
	return func() {
		_ = p.Close()
		CloseServer(server)
	}, nil
}

// newMux routes everything that the listener serves. Metrics and readiness contain names of limits,
// queues and hosts, so they need the page's authentication unless they are open. Liveness is public.
func newMux(w *Worker, p *page.Page, open bool) *http.ServeMux {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(w.server, w.redis, metrics.Options{Schedules: w.cron}))
	scope := prometheus.Labels{"scope": w.config.Load().Scope}
	prometheus.WrapRegistererWith(scope, registry).MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_config_applied", Help: "1 while the config file is in force, 0 if it has errors and the previous config stays in force.",
	}, w.health.applied))
	guard := p.Guard
	if open {
		guard = func(h http.Handler) http.Handler { return h }
	}
	// The TimeoutHandler buffers the answer, so a slow client does not count as a scrape.
	scrapes := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "ok") })
	mux.Handle("GET /metrics", guard(http.TimeoutHandler(scrapes, answerTimeout, "")))
	mux.Handle("GET /readyz", guard(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if err := w.health.ready(r.Context(), w.server); err != nil {
			http.Error(out, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(out, "ok")
		if text := *w.health.evicts.Load(); text != "" {
			fmt.Fprintln(out, "but: "+text)
		}
	})))
	mux.Handle("/", p)
	return mux
}

func (w *Worker) newPage(p config.Page) (*page.Page, error) {
	c := w.config.Load()
	return page.New(page.Options{
		Redis: w.redis, Limiter: w.limiter.Limiter, Scope: c.Scope, Log: w.log, Shards: c.Shards(),
		KeyOf: func(limit string) (by string, known bool) {
			keys := w.config.Load().Tasks.KeysOf(limit)
			return cmp.Or(keys...), len(keys) > 0
		},
		NormalizeKey: func(limit, key string) (string, error) { return w.config.Load().Tasks.Key(limit, key) },
		Token:        string(p.Token), HTTPS: p.HTTPS, ReadOnly: p.ReadOnly, Redact: p.Redact,
	})
}

// health is the state of the config, and the warning about evictions.
type health struct {
	bad    atomic.Bool            // whether the config file has errors
	evicts atomic.Pointer[string] // the eviction warning, or empty
}

func newHealth() *health {
	h := &health{}
	h.evicts.Store(new(""))
	return h
}

// applied is 1 while the config file is in force.
func (h *health) applied() float64 {
	if h.bad.Load() {
		return 0
	}
	return 1
}

// ready returns why the worker is not ready, in one line.
func (h *health) ready(ctx context.Context, server *scheduler.Server) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := server.Ready(ctx); err != nil {
		return fmt.Errorf("cannot use Redis: %s: %w", redishealth.ProblemOf(err).Description(), err)
	}
	if h.bad.Load() {
		return errors.New("the config file has errors and the previous config stays in force: see the log")
	}
	return nil
}

const (
	readyTimeout   = time.Second      // of the check of Redis
	requestTimeout = 5 * time.Second  // for a client to send its request
	answerTimeout  = 30 * time.Second // to compute an answer, and for the client to read it
	idleTimeout    = time.Minute      // of a connection without a request
	closeTimeout   = 2 * time.Second  // for requests to end when the server stops
)

// Listen listens at an address such as :9090, which is for this machine only. The listener is nil if
// the text is empty.
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

// maxConns bounds the connections of a listener. A process may have only 256 file descriptors, and
// Redis and the jobs need most of them.
const maxConns = 100

// HTTPServer returns a server with timeouts.
func HTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
	}
}

// CloseServer stops a server after the current requests.
func CloseServer(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

// OfThisMachine reports whether only this machine can reach an address HOST:PORT.
func OfThisMachine(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// NewCertificate reads the page's certificate from PEM files. get reads the files again for each
// connection, because certificates are renewed while a worker runs. If the files cannot be read, as
// while they are being written, get returns the last certificate.
func NewCertificate(cert, key string) (get func(*tls.ClientHelloInfo) (*tls.Certificate, error), err error) {
	first, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the page's certificate %s and key %s: %w", cert, key, err)
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(&first)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if pair, err := tls.LoadX509KeyPair(cert, key); err == nil {
			last.Store(&pair)
		}
		return last.Load(), nil
	}, nil
}
