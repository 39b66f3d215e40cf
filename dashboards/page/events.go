package page

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"time"
)

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
	name, q, err := parsePlace(r.URL.Query().Get("of"))
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
	// An http.Server's ReadTimeout would end the stream.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a stream has nothing more to say
	w.Header().Set("Content-Type", "text/event-stream")
	// nginx would keep events back until it has a page full of them.
	w.Header().Set("X-Accel-Buffering", "no")
	// How many milliseconds a browser waits before it asks again.
	if _, err := w.Write([]byte("retry: 1000\n\n")); err != nil {
		return
	}
	stream := stream{ResponseWriter: w, control: http.NewResponseController(w)}
	for {
		// The newest, which need not be what woke it: one that is slow skips some.
		s, changed := p.reader.latest(r.Context())
		if err := p.send(&stream, s, name, q); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-p.ctx.Done():
			return
		case <-changed:
		case <-time.After(time.Until(s.At.Add(turn))):
		}
	}
}

// send sends what has changed since the last time: the view, and the line that says
// how old it is. A view that cannot be made stays as it was, and the line says why.
// The line has the time in it: while Redis answers something is sent about each turn,
// which is how a viewer who has vanished without a word is found out.
func (p *Page) send(to *stream, s *snapshot, name string, q map[string][]string) error {
	live, err := p.live(s, name, q)
	if err != nil {
		s = &snapshot{Now: s.Now, At: s.At, Err: err} // what is on the page stays there
	} else if err := to.send(live.event, &to.live); err != nil {
		return err
	}
	var status bytes.Buffer // of a template that all pages have
	if err := execute(&status, "limits", "status", frame{Page: p, Snap: s}); err != nil {
		return err
	}
	if err := to.send(newEvent("status", status.String()), &to.status); err != nil {
		return err
	}
	return to.control.Flush()
}

// eventLine ends a line as the format wants it, whichever of its three line ends
// the text has: none can end the event early and begin one of its own.
var eventLine = strings.NewReplacer("\r\n", "\ndata: ", "\r", "\ndata: ", "\n", "\ndata: ")

// newEvent is a message of the stream with a text of any number of lines.
func newEvent(name, text string) string {
	return "event: " + name + "\ndata: " + eventLine.Replace(text) + "\n\n"
}

type stream struct {
	http.ResponseWriter
	control *http.ResponseController
	// live and status are the last events of these names. That of a view is the same for
	// all who look at one place, so a slow viewer does not have a page for itself.
	live, status string
}

// send sends an event, unless it was the last one sent under its name.
func (s *stream) send(event string, last *string) error {
	if event == *last {
		return nil
	}
	*last = event
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every server can
	_, err := io.WriteString(s.ResponseWriter, event)
	return err
}
