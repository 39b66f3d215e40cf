package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/scheduler"
)

// status is how a worker is: whether its config is right, and how often it was
// read again.
type status struct {
	bad     atomic.Bool // whether the config file has errors
	reloads *prometheus.CounterVec
	success prometheus.Gauge
}

func newStatus() *status {
	s := &status{
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_config_reloads_total", Help: "How often the config file was read again, by result: ok, or failed, which changes nothing.",
		}, []string{"result"}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_config_last_reload_success_timestamp_seconds", Help: "When the config was read last that is in force.",
		}),
	}
	s.reloads.WithLabelValues("ok")
	s.reloads.WithLabelValues("failed")
	s.success.SetToCurrentTime()
	return s
}

// reloaded is told how a reload ended.
func (s *status) reloaded(err error) {
	if err != nil {
		s.bad.Store(true)
		s.reloads.WithLabelValues("failed").Inc()
		return
	}
	s.bad.Store(false)
	s.reloads.WithLabelValues("ok").Inc()
	s.success.SetToCurrentTime()
}

// readyTimeout bounds how long Redis may take to be found well.
const readyTimeout = time.Second

// ready returns why the worker does not do all it should, in one line.
func (s *status) ready(ctx context.Context, server *scheduler.Server) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := server.Ready(ctx); err != nil {
		return fmt.Errorf("cannot use Redis: %w", err)
	}
	if s.bad.Load() {
		return errors.New("the config file has errors, and what was read before holds: see the log")
	}
	return nil
}
