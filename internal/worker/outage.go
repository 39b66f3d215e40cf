package worker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/scheduler"
)

// outageLog is a log handler for everything that talks to Redis. While Redis
// cannot be used each of its users complains again and again; outageLog says
// so once, and once that it is over.
type outageLog struct {
	slog.Handler
	ready func(context.Context) error // why jobs cannot run now; set before anything is logged
	down  atomic.Bool
	mu    sync.Mutex
	why   outage.Trouble // that was told last; mu guards it
	// dropped counts the outages of which package scheduler has told and that were
	// dropped, so that their ends are.
	dropped atomic.Int32
	ended   atomic.Int64 // when the last one did, as time.Time's UnixNano
}

// check is asynq's health check, which only knows whether Redis answers.
func (o *outageLog) check(err error) {
	if err == nil && o.down.Load() {
		err = o.ask(context.Background())
	}
	if err != nil {
		o.begins(err)
	} else if o.down.Load() {
		o.ended.Store(time.Now().UnixNano())
		if o.down.Swap(false) {
			slog.New(o.Handler).Info("Redis is back: jobs go on")
		}
	}
}

// begins says that Redis cannot be used, and why, and says so again where it is something
// else by now that somebody has to mend.
func (o *outageLog) begins(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := outage.Of(err)
	if o.down.Load() && (of == o.why || of.Passes()) {
		return
	}
	o.why = of
	o.down.Store(true)
	slog.New(o.Handler).Error("Redis cannot be used: jobs wait", "why", of.Says(), "error", err)
}

// readyTimeout bounds how long Redis may take to be found well.
const readyTimeout = time.Second

func (o *outageLog) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	return o.ready(ctx)
}

// Handle implements slog.Handler. While Redis is away it drops warnings and errors, for
// they only say that; one of them may be the first that is heard of it.
func (o *outageLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		if o.dropped.Load() == 0 || scheduler.OutageOf(ctx) != scheduler.OutageEnds {
			return o.Handler.Handle(ctx, r)
		}
		o.dropped.Add(-1)
		o.check(nil)
		return nil
	}
	if !o.down.Load() {
		o.check(o.ask(ctx))
	}
	if !o.down.Load() && !o.late(ctx, r) {
		return o.Handler.Handle(ctx, r)
	}
	if scheduler.OutageOf(ctx) == scheduler.OutageBegins {
		o.dropped.Add(1)
	}
	return nil
}

// late reports whether a complaint is still of the last outage: it was made in it, or is
// of asynq, which does not say since when its call hung, and came soon after.
func (o *outageLog) late(ctx context.Context, r slog.Record) bool {
	after := r.Time.Sub(time.Unix(0, o.ended.Load()))
	return after <= 0 || after < time.Second && ctx.Value(fromAsynq{}) != nil
}

// WithAttrs and WithGroup implement slog.Handler; nobody here uses them.
func (o *outageLog) WithAttrs([]slog.Attr) slog.Handler { return o }

func (o *outageLog) WithGroup(string) slog.Handler { return o }

type asynqLog struct{ log *slog.Logger }

// fromAsynq is the key of a context whose lines are asynq's.
type fromAsynq struct{}

var ofAsynq = context.WithValue(context.Background(), fromAsynq{}, true)

// Warn leaves out what logFailure says anyway.
func (l asynqLog) Warn(args ...any) {
	text := fmt.Sprint(args...)
	if strings.HasPrefix(text, "Retry exhausted") || strings.HasPrefix(text, "revoke task") {
		return
	}
	l.log.WarnContext(ofAsynq, text)
}

func (l asynqLog) Debug(args ...any) { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.ErrorContext(ofAsynq, fmt.Sprint(args...)) }
func (l asynqLog) Fatal(args ...any) { l.log.ErrorContext(ofAsynq, fmt.Sprint(args...)) }
