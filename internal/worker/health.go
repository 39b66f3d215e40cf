package worker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/scheduler"
)

// health is how a worker is: whether its config is right, and how often it was
// read again.
type health struct {
	bad     atomic.Bool // whether the config file has errors
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
	h.reloads.WithLabelValues("ok")
	h.reloads.WithLabelValues("failed")
	h.success.SetToCurrentTime()
	return h
}

// reloaded is told how a reload ended.
func (h *health) reloaded(err error) {
	if err != nil {
		h.bad.Store(true)
		h.reloads.WithLabelValues("failed").Inc()
		return
	}
	h.bad.Store(false)
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
		return fmt.Errorf("cannot use Redis: %w", err)
	}
	if h.bad.Load() {
		return errors.New("the config file has errors, and what was read before holds: see the log")
	}
	return nil
}
