package waitdb_test

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestRedisGone: every method reports that Redis is unavailable.
func TestRedisGone(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	server := redistest.Run(t)
	rdb := server.Client()
	defer rdb.Close()
	l := waitdb.New(throttle.New(rdb, throttle.Options{}))
	define(t, l, perMinute("l", 3))
	must(t, server.Stop())
	who := job("j")
	for verb, call := range map[string]func(context.Context) error{
		"Acquire":  func(ctx context.Context) error { return second(l.Acquire(ctx, who, one("l"))) },
		"Refused":  func(ctx context.Context) error { return second(l.RateLimited(ctx, who, waitdb.RateLimit{}, one("l"))) },
		"Forget":   func(ctx context.Context) error { return second(l.Forget(ctx, who.JobID)) },
		"Waiting":  func(ctx context.Context) error { _, _, err := l.Position(ctx, who.JobID); return err },
		"Places":   func(ctx context.Context) error { return second(l.Positions(ctx, who.JobID)) },
		"Waiters":  func(ctx context.Context) error { return second(l.CountWaiting(ctx, "l", 0)) },
		"Wants":    func(ctx context.Context) error { return second(l.Demands(ctx)) },
		"Forecast": func(ctx context.Context) error { return second(forecast.Make(ctx, l, forecast.Options{})) },
	} {
		if err := call(t.Context()); !errors.Is(err, throttle.ErrUnavailable) || errors.Is(err, throttle.ErrNoLimit) {
			t.Errorf("%s without Redis: %v, want ErrUnavailable", verb, err)
		}
	}
}
