package page

import (
	"context"
	"net/url"
	"time"
)

// Behind returns a viewer with an old snapshot, whose view is loaded when look is called.
func (p *Page) Behind(ctx context.Context, view string, q url.Values) (look func() error) {
	s := p.reader.latest(ctx)
	return func() error {
		at, err := newAddress(view, q)
		if err == nil {
			_, err = views[at.view].load(ctx, p, s, at)
		}
		return err
	}
}

// Clock is clock.
func Clock(t, now time.Time) string { return clock(t, now) }

// Actions are all actions.
func Actions() map[string]*action { return actions }

// Waits returns how many jobs wait, for how many limits, and whether the reader has a forecast.
func (p *Page) Waits(ctx context.Context) (jobs, limits int, forecast bool) {
	s := p.reader.latest(ctx)
	return s.Waiting, len(s.demand), len(s.forecasts) > 0
}
