package redishealth

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// Quiet is a log handler for all parts of a process that talk to Redis. While Redis cannot be
// used each of them complains again and again. Quiet drops their warnings and errors, and
// lets the lines of the Monitors pass.
type Quiet struct {
	slog.Handler
	// Monitors are asked. It is set before anything is logged.
	Monitors []*Monitor
}

type (
	ofMonitor struct{} // the key of contexts of a Monitor's lines
	lateKey   struct{} // the key of contexts of lines that may come late
)

// MayBeLate returns the context of lines that can complain of an outage up to a second after
// its end, since the call that failed does not say when it began.
func MayBeLate(ctx context.Context) context.Context { return context.WithValue(ctx, lateKey{}, true) }

// checkTimeout bounds how long Redis may take to answer the check that a complaint causes.
const checkTimeout = time.Second

// Handle implements slog.Handler. The first complaint of an outage may come before any Monitor
// knows of the outage, so each complaint causes a check.
func (q *Quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn || ctx.Value(ofMonitor{}) != nil {
		return q.Handler.Handle(ctx, r)
	}
	for _, m := range q.Monitors {
		down, ended := m.down()
		if !down {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
			_ = m.check(ctx, saysNoRights(r))
			cancel()
			down, ended = m.down()
		}
		after := r.Time.Sub(ended)
		if down || after <= 0 || after < time.Second && ctx.Value(lateKey{}) != nil {
			return nil
		}
	}
	return q.Handler.Handle(ctx, r)
}

// saysNoRights reports whether a line complains of a missing right.
func saysNoRights(r slog.Record) bool {
	says := strings.Contains(r.Message, "NOPERM")
	r.Attrs(func(a slog.Attr) bool {
		says = says || strings.Contains(a.Value.String(), "NOPERM")
		return !says
	})
	return says
}

// WithAttrs implements slog.Handler. No part of a worker uses attributes or groups.
func (q *Quiet) WithAttrs([]slog.Attr) slog.Handler { return q }

// WithGroup implements slog.Handler.
func (q *Quiet) WithGroup(string) slog.Handler { return q }
