package page

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"time"
)

// writeTimeout is how long a viewer may take to read an event before it is
// dropped; it comes again by itself. It stands in place of the server's own
// WriteTimeout, which would count from the beginning of the stream.
const writeTimeout = 10 * time.Second

// serveEvents sends the part of a view that changes whenever it has changed, as
// server-sent events (HTML Living Standard 9.2), until the viewer leaves or the page
// is closed. A browser that loses the stream asks for it again by itself.
//
// Each event is the whole part anew, and the script changes what differs: so nothing
// is remembered of what a viewer has but a sum, one who was slow gets what holds now,
// and the bytes are the same for all who look at one place. A stream costs a
// goroutine and its connection, and Redis nothing where others look at the same.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	name, q, err := parsePlace(r.URL.Query().Get("of"))
	if err != nil {
		p.fail(w, r, http.StatusBadRequest, sentence(err))
		return
	}
	// Counted before anything is read: those who are refused cost nothing.
	woken, done, ok := p.reader.watch()
	if !ok {
		w.Header().Set("Retry-After", "10")
		p.fail(w, r, http.StatusServiceUnavailable, "Too many look at this page already.")
		return
	}
	defer done()
	// An http.Server's ReadTimeout would end the stream.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a stream has nothing more to say
	w.Header().Set("Content-Type", "text/event-stream")
	// nginx would keep events back until it has a page full of them.
	w.Header().Set("X-Accel-Buffering", "no")
	// How many milliseconds a browser waits before it asks again.
	if _, err := w.Write([]byte("retry: 1000\n\n")); err != nil {
		return
	}
	stream := stream{ResponseWriter: w, control: http.NewResponseController(w), sent: map[string][sha256.Size]byte{}}
	for {
		// The newest, which need not be what woke it: one that is slow skips some.
		s := p.reader.latest(r.Context())
		if err := p.send(&stream, s, name, q); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-p.ctx.Done():
			return
		case <-woken:
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
	} else if err := to.send(live.event); err != nil {
		return err
	}
	status, err := s.status(p)
	if err != nil {
		return err
	}
	if err := to.send(status); err != nil {
		return err
	}
	return to.control.Flush()
}

// event is a message of the stream, made once for all who get it.
type event struct {
	name  string            // live or status
	bytes []byte            // as they go over the line, and are not changed any more
	sum   [sha256.Size]byte // of the bytes
}

// eventLine ends a line as the format wants it, whichever of its three line ends
// the text has: none can end the event early and begin one of its own.
var eventLine = strings.NewReplacer("\r\n", "\ndata: ", "\r", "\ndata: ", "\n", "\ndata: ")

// newEvent is an event with a text of any number of lines.
func newEvent(name, text string) event {
	bytes := []byte("event: " + name + "\ndata: " + eventLine.Replace(text) + "\n\n")
	return event{name, bytes, sha256.Sum256(bytes)}
}

type stream struct {
	http.ResponseWriter
	control *http.ResponseController
	// sent is the sum of the last event of each name: a few bytes for a viewer, where
	// the text itself would be the size of a page for each.
	sent map[string][sha256.Size]byte
}

// send sends an event, unless it was the last one sent under its name.
func (s *stream) send(e event) error {
	if last, ok := s.sent[e.name]; ok && last == e.sum {
		return nil
	}
	s.sent[e.name] = e.sum
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every server can
	_, err := s.Write(e.bytes)
	return err
}
