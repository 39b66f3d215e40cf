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
	make func(ctx context.Context, p *Page, s *snapshot, at place) (any, error)
	// again is for how long what the view itself has read is good. The zero value is
	// for views that read nothing.
	again time.Duration
}

// views are those that there are, by their name in the address. What costs more is read
// more seldom: a page of lanes is some thirty round trips, and jobs of a list come
// with their payloads. Changes are in the snapshot.
var views = map[string]*view{
	"":        {"Limits", makeLimits, time.Second},
	"waiting": {"Waiting", makeWaiting, 2 * time.Second},
	"job":     {"Job", makeJob, time.Second},
	"jobs":    {"Jobs", makeList, 5 * time.Second},
	"changes": {"Changes", makeChanges, 0},
}

// parsePlace reads the text of a place; any other text is an error. Where an action
// sends the browser back to is read with it, too: so a link cannot lead by way of this
// page to another site, or from one action into the next.
func parsePlace(text string) (place, error) {
	name, query, _ := strings.Cut(text, "?")
	name = strings.TrimPrefix(name, "./")
	if views[name] == nil {
		return place{}, errors.New("there is no such page")
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return place{}, errors.New("the address cannot be read")
	}
	return newPlace(name, q)
}

// live makes the part of a view that changes. Who made it does not matter: it is bound
// to the page and not to a request, so that one viewer who leaves does not spoil it for
// the others. Nothing in it may depend on who looks. A view that failed is tried again in a
// later turn.
func (p *Page) live(s *snapshot, at place) (template.HTML, error) {
	// Another viewer of the same place waits here for the first, and those of other
	// places do not.
	m := s.kept.at(at.text)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.turn == s.turn {
		return m.html, m.err
	}
	v := views[at.view]
	m.turn = s.turn
	if now := time.Now(); v.again == 0 || now.After(m.until) {
		m.until = now.Add(v.again - v.again/10) // turns are not quite even
		m.data, m.err = p.make(s, v, at)
	}
	if m.err != nil {
		return "", m.err
	}
	var out bytes.Buffer
	f := frame{Page: p, Title: v.title, View: at.view, Of: at.text, Snap: s, Data: m.data, Live: true}
	m.err = execute(&out, cmp.Or(at.view, "limits"), "live", f)
	m.html = template.HTML(out.String())
	return m.html, m.err
}

// make has a view read what it shows. Where that takes Redis, some at a time do: those beyond
// wait for a slot, and that counts against their readTimeout.
func (p *Page) make(s *snapshot, v *view, at place) (any, error) {
	ctx, cancel := context.WithTimeout(p.ctx, readTimeout)
	defer cancel()
	if v.again > 0 {
		p.reads <- struct{}{}
		defer func() { <-p.reads }()
	}
	return v.make(ctx, p, s, at)
}

// serveView answers with a whole page, which the script asks for again every two seconds. Where Redis
// is away it has what was known before, and says so: an operator needs it most then. A
// view that must read for its query is an error with 503 instead.
func (p *Page) serveView(w http.ResponseWriter, r *http.Request, name string) {
	at, err := newPlace(name, r.URL.Query())
	if err != nil {
		p.fail(w, http.StatusRequestURITooLong, sentence(err))
		return
	}
	s := p.reader.latest(r.Context())
	live, err := p.live(s, at)
	if err != nil {
		p.failRead(w, err)
		return
	}
	p.write(w, http.StatusOK, cmp.Or(name, "limits"), frame{Page: p, Title: views[name].title, View: name, Of: at.text, Live: true, Snap: s, Data: live})
}
