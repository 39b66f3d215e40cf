package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/dial"
	"github.com/headgate/headgate/throttle"
)

// connect returns the limiter of the config's Redis; the caller must call done.
func connect(ctx context.Context, g *cli.Globals) (limiter *throttle.Lanes, done func(), err error) {
	c, err := g.Load()
	if err != nil {
		return nil, nil, err
	}
	rdb, err := dial.Config(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	return dial.Limiter(rdb, c), func() { _ = rdb.Close() }, nil
}

// badUnlessDown makes the limiter's refusal of arguments a usage error.
func badUnlessDown(err error) error {
	if err == nil || errors.Is(err, throttle.ErrUnavailable) || errors.Is(err, throttle.ErrNoLimit) {
		return err
	}
	return cli.Usagef("%w", err)
}

// in writes a time ahead as people read it.
func in(d time.Duration) string {
	switch {
	case d <= 0:
		return "now"
	case d < time.Minute:
		return d.Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%s (%s)", d.Round(time.Second), time.Now().Add(d).Format(time.DateTime))
}
