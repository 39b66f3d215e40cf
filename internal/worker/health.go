package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/trouble"
	"github.com/headgate/headgate/scheduler"
)

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
	if text := h.evicts.Load(); text != nil {
		return *text
	}
	return ""
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
