package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/history"
)

// A view is a page that changes while somebody looks: from what was read in a turn
// and its own query it makes what its template shows. What it needs beside the
// snapshot it reads itself, with the ctx, for that query alone: a lane's jobs, a key.
//
// So three things are kept, each for its own while: the snapshot, a turn long, for all;
// what a view has read for a query, again long, which may outlast a turn; and the HTML
// of a place, as long as the snapshot that it was made of.
type view struct {
	title string
	// make gives what the template shows as .Data. It may be called by many at once for
	// different queries, and must not change the snapshot.
	make func(ctx context.Context, p *Page, s *snapshot, q url.Values) (any, error)
	// again is for how long what the view itself has read is good. The zero value is
	// for views that read nothing.
	again time.Duration
}

// views are those that there are, by their name in the address. What costs more is read
// more seldom: a page of lanes is some thirty round trips, and jobs of a list come
// with their payloads. Queues and changes are in the snapshot.
var views = map[string]*view{
	"":          {"Limits", makeLimits, time.Second},
	"waiting":   {"Waiting", makeWaiting, 2 * time.Second},
	"job":       {"Job", makeJob, time.Second},
	"queues":    {"Queues", func(context.Context, *Page, *snapshot, url.Values) (any, error) { return nil, nil }, 0},
	"schedules": {"Schedules", makeSchedules, 2 * time.Second},
	"jobs":      {"Jobs", makeList, 5 * time.Second},
	"changes":   {"Changes", makeChanges, 0},
	"history":   {"History", makePast, 15 * time.Second},
	"workers": {"Workers", func(ctx context.Context, p *Page, _ *snapshot, _ url.Values) (any, error) {
		return history.Processes(ctx, p.Redis, p.Scope)
	}, 5 * time.Second},
	"crawls": {"Crawls", makeCrawls, 5 * time.Second},
}

// parsePlace reads what place has written; any other text is an error. Where an action
// sends the browser back to is read with it, too: so a link cannot lead by way of this
// page to another site, or from one action into the next.
func parsePlace(text string) (name string, q url.Values, err error) {
	name, query, _ := strings.Cut(text, "?")
	name = strings.TrimPrefix(name, "./")
	if views[name] == nil {
		return "", nil, errors.New("there is no such page")
	}
	q, err = url.ParseQuery(query)
	if err != nil {
		return "", nil, errors.New("the address cannot be read")
	}
	_, q, err = place(name, q)
	return name, q, err
}

// live makes the part of a view that changes. Who made it does not matter: it is bound
// to the page and not to a request, so that one viewer who leaves does not spoil it for
// the others. Nothing in it may depend on who looks. A view that failed is tried again in a
// later turn.
func (p *Page) live(s *snapshot, name string, q url.Values) (rendered, error) {
	of, q, err := place(name, q)
	if err != nil {
		return rendered{}, err
	}
	// Another viewer of the same place waits here for the first, and those of other
	// places do not.
	m := s.kept.at(of)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == s {
		return m.rendered, m.err
	}
	v := views[name]
	m.of = s
	if now := time.Now(); v.again == 0 || now.After(m.until) {
		m.until = now.Add(v.again - v.again/10) // turns are not quite even
		m.data, m.err = p.make(s, v, q)
	}
	if m.err != nil {
		return rendered{}, m.err
	}
	var out bytes.Buffer
	f := frame{Page: p, Title: v.title, View: name, Of: of, Snap: s, Data: m.data, Live: true}
	m.err = execute(&out, cmp.Or(name, "limits"), "live", f)
	m.rendered = rendered{template.HTML(out.String()), newEvent("live", out.String())}
	return m.rendered, m.err
}

// make has a view read what it shows. Where that takes Redis, some at a time do: those beyond
// wait for a slot, and that counts against their readTimeout.
func (p *Page) make(s *snapshot, v *view, q url.Values) (any, error) {
	ctx, cancel := context.WithTimeout(p.ctx, readTimeout)
	defer cancel()
	if v.again > 0 {
		p.reads <- struct{}{}
		defer func() { <-p.reads }()
	}
	return v.make(ctx, p, s, q)
}

// serveView answers with a whole page, which then keeps itself up to date. Where Redis
// is away it has what was known before, and says so: an operator needs it most then. A
// view that must read for its query is an error with 503 instead.
func (p *Page) serveView(w http.ResponseWriter, r *http.Request, name string) {
	s, _ := p.reader.latest(r.Context())
	if s.Err != nil && s.Now.IsZero() {
		p.Log.Warn("the page cannot read Redis", "error", s.Err)
	}
	live, err := p.live(s, name, r.URL.Query())
	if err != nil {
		p.failRead(w, err)
		return
	}
	of, _, _ := place(name, r.URL.Query())
	p.write(w, http.StatusOK, cmp.Or(name, "limits"), frame{Page: p, Title: views[name].title, View: name, Of: of, Live: true, Snap: s, Data: live.html})
}
