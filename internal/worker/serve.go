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
	"github.com/headgate/headgate/internal/trouble"
	"github.com/headgate/headgate/scheduler"
)

// maxScrapes bounds the scrapes at the same time, for each asks Redis.
const maxScrapes = 4

// answer has a listener serve what the worker tells by HTTP, until end.
func (w *Worker) answer(l net.Listener, who config.Page) (end func(), err error) {
	url := "http://" + l.Addr().String()
	if who.TLSCert != "" {
		cert, err := NewCertificate(who.TLSCert, who.TLSKey, w.log)
		if err != nil {
			return nil, err
		}
		l, url = cert.over(l), "https://"+l.Addr().String()
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
		_ = p.Close() // the streams of those who look end
		CloseServer(server)
	}, nil
}

// newMux has everything that the listener serves, by path. Metrics, and why a worker is
// not ready, have names of limits, queues and hosts in them: they are for whom the page
// is for, unless they are open. Whether the worker lives everybody may know.
func newMux(w *Worker, p *page.Page, open bool) *http.ServeMux {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(w.server, w.store, metrics.Options{Schedules: w.cron}))
	scope := prometheus.Labels{"scope": w.config.Load().Scope}
	prometheus.WrapRegistererWith(scope, registry).MustRegister(w.health.reloads, w.health.success, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headgate_config_taken", Help: "1 while the config file, as it was read last, is in force; 0 where it has errors, and what was read before holds.",
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

// readyTimeout bounds how long Redis may take to be found well.
const readyTimeout = time.Second

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
