package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// outage is a log handler for everything that talks to Redis. While Redis
// cannot be reached each of its users complains again and again; outage says
// so once, and once that it is over.
type outage struct {
	redis redis.UniversalClient
	next  slog.Handler
	down  atomic.Bool
}

// check is asynq's health check.
func (o *outage) check(err error) {
	switch {
	case err != nil && !o.down.Swap(true):
		slog.New(o.next).Error("Redis cannot be reached: jobs wait", "error", err)
	case err == nil && o.down.Swap(false):
		slog.New(o.next).Info("Redis is back: jobs go on")
	}
}

// Enabled implements slog.Handler.
func (o *outage) Enabled(ctx context.Context, level slog.Level) bool {
	return o.next.Enabled(ctx, level)
}

// Handle implements slog.Handler. It drops warnings and errors while Redis is
// away, for they only say that.
func (o *outage) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return o.next.Handle(ctx, r)
	}
	if !o.down.Load() {
		ping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := o.redis.Ping(ping).Err(); err != nil {
			o.check(err)
		}
	}
	if o.down.Load() {
		return nil
	}
	return o.next.Handle(ctx, r)
}

// WithAttrs and WithGroup implement slog.Handler; nobody here uses them.
func (o *outage) WithAttrs([]slog.Attr) slog.Handler { return o }

// WithGroup implements slog.Handler.
func (o *outage) WithGroup(string) slog.Handler { return o }

// asynqLog is a logger as asynq wants it.
type asynqLog struct{ log *slog.Logger }

// Warn leaves out what logFailure says anyway, and jobs that are dropped on
// purpose.
func (l asynqLog) Warn(args ...any) {
	text := fmt.Sprint(args...)
	if strings.HasPrefix(text, "Retry exhausted") || strings.HasPrefix(text, "revoke task") {
		return
	}
	l.log.Warn(text)
}

func (l asynqLog) Debug(args ...any) { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.Error(fmt.Sprint(args...)) }
func (l asynqLog) Fatal(args ...any) { l.log.Error(fmt.Sprint(args...)) }
