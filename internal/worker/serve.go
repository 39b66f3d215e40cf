package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/dashboards/metrics"
	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/listen"
	"github.com/headgate/headgate/internal/trouble"
	"github.com/headgate/headgate/scheduler"
)

// maxScrapes bounds the scrapes at the same time, for each asks Redis.
const maxScrapes = 4

// listener serves what a worker tells by HTTP. Nil serves nothing.
type listener struct {
	net.Listener
	server *http.Server
	page   *page.Page
}

// listen takes an address, before any job runs. It returns nil where there is none to take.
func (w *Worker) listen(ctx context.Context, address string) (*listener, error) {
	taken, err := listen.At(ctx, address)
	if taken == nil || err != nil {
		return nil, err
	}
	return &listener{Listener: taken}, nil
}

// serve answers for a worker until close.
func (l *listener) serve(w *Worker, who config.Page) (err error) {
	if l == nil {
		return nil
	}
	if l.page, err = w.newPage(who); err != nil {
		return err
	}
	url := "http://" + l.Addr().String()
	if who.TLSCert != "" {
		cert, err := listen.NewCertificate(who.TLSCert, who.TLSKey, w.log)
		if err != nil {
			return err
		}
		l.Listener, url = cert.Over(l.Listener), "https://"+l.Addr().String()
	}
	l.server = listen.Server(newMux(w, l.page, who.OpenMetrics))
	l.server.ErrorLog = listen.ErrorLog(w.log)
	w.log.Info("listening", "address", url)
	go func() {
		if err := l.server.Serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("metrics and health are not served any more", "error", err)
		}
	}()
	return nil
}

// close ends it once requests that have begun are answered.
func (l *listener) close() {
	if l == nil {
		return
	}
	if l.page != nil {
		_ = l.page.Close() // the streams of those who look end
	}
	if l.server != nil {
		listen.Close(l.server)
	}
	_ = l.Listener.Close() // it was never served if the worker did not start
}

// newMux has everything that the listener serves, by path. Metrics, and why a worker is
// not ready, have names of limits, queues and hosts in them: they are for whom the page
// is for, unless they are open. Whether the worker lives everybody may know.
func newMux(w *Worker, p *page.Page, open bool) *http.ServeMux {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(w.server, w.store, metrics.Options{Schedules: w.cron}))
	scope := prometheus.Labels{"scope": w.config.Load().Scope}
	prometheus.WrapRegistererWith(scope, registry).MustRegister(w.health.reloads, w.health.success, w.health.taken)
	guard := p.Guard
	if open {
		guard = func(h http.Handler) http.Handler { return h }
	}
	// The TimeoutHandler takes what a scrape says into memory: a client that reads slowly, or
	// not at all, has no place among them.
	scrapes := promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "ok") })
	mux.Handle("GET /metrics", guard(http.TimeoutHandler(scrapes, listen.AnswerTimeout, "")))
	mux.Handle("GET /readyz", guard(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if err := w.health.ready(r.Context(), w.server); err != nil {
			http.Error(out, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(out, "ok")
		if text := w.health.warning(); text != "" {
			fmt.Fprintln(out, "but: "+text)
		}
	})))
	mux.Handle("/", p)
	return mux
}

func (w *Worker) newPage(p config.Page) (*page.Page, error) {
	c := w.config.Load()
	return page.New(page.Options{
		Redis: w.store, Limiter: w.limiter, Scope: c.Scope, Schedules: w.cron, Log: w.log,
		KeyOf: func(limit string) (by string, known bool) {
			keys := w.config.Load().KeysOf(limit)
			return cmp.Or(keys...), len(keys) > 0
		},
		Token: string(p.Token), User: p.User, Password: string(p.Password), HTTPS: p.HTTPS,
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
	taken   prometheus.Gauge
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
	h.taken = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "headgate_config_taken", Help: "1 while the config file, as it was read last, is in force; 0 where it has errors, and what was read before holds.",
	})
	h.evicts.Store(new(""))
	h.reloads.WithLabelValues("ok")
	h.reloads.WithLabelValues("failed")
	h.success.SetToCurrentTime()
	h.taken.Set(1)
	return h
}

func (h *health) reloaded(err error) {
	if err != nil {
		h.bad.Store(true)
		h.taken.Set(0)
		h.reloads.WithLabelValues("failed").Inc()
		return
	}
	h.bad.Store(false)
	h.taken.Set(1)
	h.reloads.WithLabelValues("ok").Inc()
	h.success.SetToCurrentTime()
}

// readyTimeout bounds how long Redis may take to be found well.
const readyTimeout = time.Second

// warning is what may soon keep the worker from doing all it should; empty for nothing.
func (h *health) warning() string {
	return *h.evicts.Load()
}

// ready returns why the worker does not do all it should, in one line.
func (h *health) ready(ctx context.Context, server *scheduler.Server) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := server.Ready(ctx); err != nil {
		return fmt.Errorf("cannot use Redis: %s: %w", trouble.Of(err).Says(), err)
	}
	if h.bad.Load() {
		return errors.New("the config file has errors, and what was read before holds: see the log")
	}
	return nil
}
