package page

import (
	"context"
	"net/url"
	"time"
)

// Behind is a viewer who has what was read before: its place is made when look is
// called.
func (p *Page) Behind(ctx context.Context, view string, q url.Values) (look func() error) {
	s := p.reader.latest(ctx)
	return func() error {
		at, err := newPlace(view, q)
		if err == nil {
			_, err = views[at.view].make(ctx, p, s, at)
		}
		return err
	}
}

// Clock is a moment near now, as the page writes it.
func Clock(t, now time.Time) string { return clock(t, now) }

// Actions are all that can be changed.
func Actions() map[string]*action { return actions }

// Waits is how many jobs wait, for how many limits, as the latest turn has it, and whether
// the next turn knows a forecast, where it need not make one.
func (p *Page) Waits(ctx context.Context) (jobs, limits int, forecast bool) {
	s := p.reader.latest(ctx)
	p.reader.reading.Lock()
	defer p.reader.reading.Unlock()
	return s.Waiting, len(s.wants), p.reader.state.forecast != nil
}
