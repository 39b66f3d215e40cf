package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"html/template"
	"io"
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
func (p *Page) live(s *snapshot, at place) (html template.HTML, event string, err error) {
	// Another viewer of the same place waits here for the first, and those of other
	// places do not.
	m := s.kept.at(at.text)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.turn == s.turn {
		return m.html, m.event, m.err
	}
	v := views[at.view]
	m.turn = s.turn
	if now := time.Now(); v.again == 0 || now.After(m.until) {
		m.until = now.Add(v.again - v.again/10) // turns are not quite even
		m.data, m.err = p.make(s, v, at)
	}
	if m.err != nil {
		return "", "", m.err
	}
	var out bytes.Buffer
	f := frame{Page: p, Title: v.title, View: at.view, Of: at.text, Snap: s, Data: m.data, Live: true}
	m.err = execute(&out, cmp.Or(at.view, "limits"), "live", f)
	m.html, m.event = template.HTML(out.String()), newEvent("live", out.String())
	return m.html, m.event, m.err
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

// serveView answers with a whole page, which then keeps itself up to date. Where Redis
// is away it has what was known before, and says so: an operator needs it most then. A
// view that must read for its query is an error with 503 instead.
func (p *Page) serveView(w http.ResponseWriter, r *http.Request, name string) {
	at, err := newPlace(name, r.URL.Query())
	if err != nil {
		p.fail(w, http.StatusRequestURITooLong, sentence(err))
		return
	}
	s := p.reader.latest(r.Context(), nil)
	live, _, err := p.live(s, at)
	if err != nil {
		p.failRead(w, err)
		return
	}
	p.write(w, http.StatusOK, cmp.Or(name, "limits"), frame{Page: p, Title: views[name].title, View: name, Of: at.text, Live: true, Snap: s, Data: live})
}

// writeTimeout is how long a viewer may take to read an event before it is
// dropped; it comes again by itself. It stands in place of the server's own
// WriteTimeout, which would count from the beginning of the stream.
const writeTimeout = 10 * time.Second

// maxViewers bounds how many may look at once: each has a connection and a goroutine.
// Those beyond can still load pages, which stand still then until the script, which
// goes on asking, gets a place.
const maxViewers = 500

// serveEvents sends the part of a view that changes whenever it has changed, as
// server-sent events (HTML Living Standard 9.2), until the viewer leaves or the page
// is closed. A browser that loses the stream asks for it again by itself.
//
// Each event is the whole part anew, and the script changes what differs: so nothing
// is remembered of what a viewer has but that, one who was slow gets what holds now,
// and the text is the same for all who look at one place. A stream costs a
// goroutine and its connection, and Redis nothing where others look at the same.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	at, err := parsePlace(r.URL.Query().Get("of"))
	if err != nil {
		p.fail(w, http.StatusBadRequest, sentence(err))
		return
	}
	// Counted before anything is read: those who are refused cost nothing.
	defer p.viewers.Add(-1)
	if p.viewers.Add(1) > maxViewers {
		w.Header().Set("Retry-After", "10")
		p.fail(w, http.StatusServiceUnavailable, "Too many look at this page already.")
		return
	}
	to := stream{ResponseController: http.NewResponseController(w), Writer: w, last: map[string]string{}}
	// An http.Server's ReadTimeout would end the stream.
	_ = to.SetReadDeadline(time.Time{}) // a stream has nothing more to say
	w.Header().Set("Content-Type", "text/event-stream")
	// nginx would keep events back until it has a page full of them.
	w.Header().Set("X-Accel-Buffering", "no")
	// How many milliseconds a browser waits before it asks again.
	if _, err := w.Write([]byte("retry: 1000\n\n")); err != nil {
		return
	}
	// Each time the newest, which need not be what woke it: one that is slow skips some.
	for s := p.reader.latest(r.Context(), nil); r.Context().Err() == nil && p.ctx.Err() == nil; s = p.reader.latest(r.Context(), s) {
		if err := p.send(to, s, at); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-p.ctx.Done():
			return
		case <-s.newer:
		case <-time.After(time.Until(s.At.Add(turn))):
		}
	}
}

// send sends what has changed since the last time: the view, and the line that says
// how old it is. A view that cannot be made stays as it was, and the line says why.
// The line has the time in it: while Redis answers something is sent about each turn,
// which is how a viewer who has vanished without a word is found out.
func (p *Page) send(to stream, s *snapshot, at place) error {
	_, live, err := p.live(s, at)
	if err != nil {
		s = &snapshot{Now: s.Now, At: s.At, Err: err} // what is on the page stays there
	} else if err := to.send("live", live); err != nil {
		return err
	}
	var status bytes.Buffer // of a template that all pages have
	if err := execute(&status, "limits", "status", frame{Page: p, Snap: s}); err != nil {
		return err
	}
	if err := to.send("status", newEvent("status", status.String())); err != nil {
		return err
	}
	return to.Flush()
}

// eventLine ends a line as the format wants it, whichever of its three line ends
// the text has: none can end the event early and begin one of its own.
var eventLine = strings.NewReplacer("\r\n", "\ndata: ", "\r", "\ndata: ", "\n", "\ndata: ")

func newEvent(name, text string) string {
	return "event: " + name + "\ndata: " + eventLine.Replace(text) + "\n\n"
}

// stream is where a viewer's events go.
type stream struct {
	*http.ResponseController
	io.Writer
	// last has the last event of each name. That of a view is the same for all who look at
	// one place, so a slow viewer does not have a page for itself.
	last map[string]string
}

// send sends an event, unless it was the last one sent under its name.
func (s stream) send(name, event string) error {
	if event == s.last[name] {
		return nil
	}
	s.last[name] = event
	_ = s.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every server can
	_, err := io.WriteString(s.Writer, event)
	return err
}
