package page

import (
	"context"
	"net/url"
	"time"
)

// Behind is a viewer who has what was read before: its place is made when look is
// called.
func (p *Page) Behind(ctx context.Context, view string, q url.Values) (look func() error) {
	s := p.reader.latest(ctx, nil)
	return func() error {
		_, _, err := p.live(s, view, q)
		return err
	}
}

// Clock is a moment near now, as the page writes it.
func Clock(t, now time.Time) string { return clock(t, now) }

// Actions are all that can be changed.
func Actions() map[string]*action { return actions }

// Viewers is how many look.
func (p *Page) Viewers() int { return int(p.viewers.Load()) }
