package worker

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/dashboards/metrics"
	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/scheduler"
)

// maxScrapes bounds the scrapes at the same time, for each asks Redis.
const maxScrapes = 4

// answer has a listener serve what the worker tells by HTTP, until end.
func (w *Worker) answer(l net.Listener, who config.Page) (end func(), err error) {
	url := "http://" + l.Addr().String()
	if who.TLSCert != "" {
		shown, err := NewCertificate(who.TLSCert, who.TLSKey, w.log)
		if err != nil {
			return nil, err
		}
		// Without HTTP/2: what bounds a connection bounds what one client can ask for.
		l = tls.NewListener(l, &tls.Config{GetCertificate: shown, NextProtos: []string{"http/1.1"}})
		url = "https://" + l.Addr().String()
	}
	p, err := w.newPage(who)
	if err != nil {
		return nil, err
	}
	server := HTTPServer(newMux(w, p, who.OpenMetrics))
	server.ErrorLog = errorLog(w.log)
	w.log.Info("listening", "address", url)
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("metrics and health are not served any more", "error", err)
		}
	}()
	return func() {
		_ = p.Close()
		CloseServer(server)
	}, nil
}

// newMux has everything that the listener serves, by path. Metrics, and why a worker is
// not ready, have names of limits, queues and hosts in them: they are for whom the page
// is for, unless they are open. Whether the worker lives everybody may know.
func newMux(w *Worker, p *page.Page, open bool) *http.ServeMux {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(w.server, w.redis, metrics.Options{Schedules: w.cron}))
	scope := prometheus.Labels{"scope": w.config.Load().Scope}
	prometheus.WrapRegistererWith(scope, registry).MustRegister(w.health.reloads, w.health.success, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_config_applied", Help: "1 while the config file is in force, 0 if it has errors and the previous config stays in force.",
	}, w.health.taken))
	guard := p.Guard
	if open {
		guard = func(h http.Handler) http.Handler { return h }
	}
	// The TimeoutHandler takes what a scrape says into memory: a client that reads slowly, or
	// not at all, has no place among them.
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
		Redis: w.redis, Limiter: w.limiter.Limiter, Scope: c.Scope, Log: w.log,
		KeyOf: func(limit string) (by string, known bool) {
			keys := w.config.Load().Tasks.KeysOf(limit)
			return cmp.Or(keys...), len(keys) > 0
		},
		SpellKey: func(limit, key string) (string, error) { return w.config.Load().Tasks.Key(limit, key) },
		Token:    string(p.Token), User: p.User, Password: string(p.Password), HTTPS: p.HTTPS,
		ReadOnly: p.ReadOnly, Redact: p.Redact,
	})
}

// health is how a worker is: whether its config is right, and how often it was
// read again.
type health struct {
	bad     atomic.Bool            // whether the config file has errors
	evicts  atomic.Pointer[string] // what is said of a Redis that deletes jobs and limits
	reloads *prometheus.CounterVec
	success prometheus.Gauge
}

func newHealth() *health {
	h := &health{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_config_reloads_total", Help: "How often the config file was read again, by result: ok, or failed, which changes nothing.",
		}, []string{"result"}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_config_last_reload_success_timestamp_seconds", Help: "When the config was read last that is in force.",
		}),
	}
	h.evicts.Store(new(""))
	h.reloads.WithLabelValues("ok")
	h.reloads.WithLabelValues("failed")
	h.success.SetToCurrentTime()
	return h
}

// taken is 1 while the config file is in force.
func (h *health) taken() float64 {
	if h.bad.Load() {
		return 0
	}
	return 1
}

func (h *health) reloaded(err error) {
	h.bad.Store(err != nil)
	if err != nil {
		h.reloads.WithLabelValues("failed").Inc()
		return
	}
	h.reloads.WithLabelValues("ok").Inc()
	h.success.SetToCurrentTime()
}

// ready returns why the worker does not do all it should, in one line.
func (h *health) ready(ctx context.Context, server *scheduler.Server) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := server.Ready(ctx); err != nil {
		return fmt.Errorf("cannot use Redis: %s: %w", redishealth.Of(err).Says(), err)
	}
	if h.bad.Load() {
		return errors.New("the config file has errors, and what was read before holds: see the log")
	}
	return nil
}

const (
	// readyTimeout bounds how long Redis may take to say that it can be used.
	readyTimeout = time.Second
	// requestTimeout bounds how long a client may take to say what it wants, and
	// idleTimeout for how long it may keep a connection for later.
	requestTimeout = 5 * time.Second
	// answerTimeout bounds how long it may take to have its answer and read it.
	answerTimeout = 30 * time.Second
	idleTimeout   = time.Minute
	// closeTimeout is how long requests may take to end when a server does.
	closeTimeout = 2 * time.Second
)

// Listen takes an address, such as :9090, which is a port of this machine only. It is nil
// where the text is empty.
func Listen(ctx context.Context, text string) (net.Listener, error) {
	address, err := config.ListenAddress(text)
	if err != nil {
		return nil, fmt.Errorf("--listen %w", err)
	}
	if address == "" {
		return nil, nil
	}
	var network net.ListenConfig
	taken, err := network.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("--listen %s: another program has that port: want a free one, such as :0 for any", text)
	}
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", text, err)
	}
	return taken, nil
}

// HTTPServer is for clients that may be slow or mean. Its connections are bounded.
func HTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10, ConnState: (&bound{most: maxConns()}).see,
	}
}

// bound is a bound on the connections of a server: one more ends the oldest. So clients
// that ask nothing, or read nothing, hold no more than that, and who comes is answered, such
// as a health check. Browsers that look at the page come again by themselves.
type bound struct {
	most int
	mu   sync.Mutex
	open []net.Conn // the oldest in front
}

func (b *bound) see(conn net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(b.open) >= b.most {
			drop(b.open[0])
			b.open = slices.Delete(b.open, 0, 1)
		}
		b.open = append(b.open, conn)
	case http.StateClosed, http.StateHijacked:
		b.open = slices.DeleteFunc(b.open, func(c net.Conn) bool { return c == conn })
	}
}

// drop ends a connection for its client, with what that has yet to read, which the system
// would keep for minutes. Whoever serves it meets an error, and closes it.
func drop(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// CloseServer ends a server once requests that have begun are answered.
func CloseServer(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

// OfThisMachine reports whether only this machine reaches an address, HOST:PORT.
func OfThisMachine(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// errorLog is for what net/http has to say. A handshake that fails is for those who debug:
// any client can have it fail, and at a warning for each would fill the log's disk.
func errorLog(to *slog.Logger) *log.Logger { return log.New(complaints{to}, "", 0) }

type complaints struct{ log *slog.Logger }

func (c complaints) Write(line []byte) (int, error) {
	text, level := strings.TrimSuffix(string(line), "\n"), slog.LevelWarn
	if strings.HasPrefix(text, "http: TLS handshake error") {
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, text)
	return len(line), nil
}

// NewCertificate reads the page's certificate from its files, in PEM. What a listener shows by
// TLS is read anew for each connection, since certificates are renewed more often than workers
// are stopped. While the files cannot be read, as between the writing of the one and of the
// other, it is the last one.
func NewCertificate(cert, key string, log *slog.Logger) (shown func(*tls.ClientHelloInfo) (*tls.Certificate, error), err error) {
	first, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the page's certificate %s and key %s: %w", cert, key, err)
	}
	var mu sync.Mutex
	last, told := &first, ""
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			last, told = &pair, ""
		} else if told != err.Error() {
			told = err.Error()
			log.Warn("the page's certificate cannot be read: the last one is shown", "cert", cert, "key", key, "error", err)
		}
		return last, nil
	}, nil
}
