package page

import (
	"bytes"
	"hash/maphash"
	"net/http"
	"strings"
	"time"
)

// writeTimeout is how long a viewer may take to read an event before it is
// dropped; it comes again by itself.
const writeTimeout = 10 * time.Second

// serveEvents sends the part of a view that changes whenever it has changed, as
// server-sent events (HTML Living Standard 9.2), until the viewer leaves or the page
// is closed. A browser that loses the stream asks for it again by itself.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	name, q, err := parsePlace(r.URL.Query().Get("of"))
	if err != nil {
		p.fail(w, r, http.StatusBadRequest, err.Error())
		return
	}
	woken, done, ok := p.reader.watch()
	if !ok {
		w.Header().Set("Retry-After", "10")
		p.fail(w, r, http.StatusServiceUnavailable, "Too many look at this page already.")
		return
	}
	defer done()
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a stream has nothing more to say
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	stream := stream{ResponseWriter: w, control: http.NewResponseController(w), seed: maphash.MakeSeed(), sent: map[string]uint64{}}
	for {
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
func (p *Page) send(to *stream, s *snapshot, name string, q map[string][]string) error {
	html, err := p.live(s, name, q)
	if err != nil {
		s = &snapshot{Now: s.Now, At: s.At, Err: err} // what is on the page stays there
	} else if err := to.event("live", string(html)); err != nil {
		return err
	}
	var status bytes.Buffer
	if err := execute(&status, "limits", "status", frame{Page: p, Snap: s}); err != nil {
		return err
	}
	if err := to.event("status", status.String()); err != nil {
		return err
	}
	return to.control.Flush()
}

// stream is a viewer's connection. Of what was sent it keeps sums only, as there may
// be hundreds of viewers.
type stream struct {
	http.ResponseWriter
	control *http.ResponseController
	seed    maphash.Seed
	sent    map[string]uint64
}

// event sends a text under a name, unless it was the last one sent. A line break in a
// text begins a new data line, or what follows would be read as a field.
func (s *stream) event(name, text string) error {
	sum := maphash.String(s.seed, text)
	if last, ok := s.sent[name]; ok && last == sum {
		return nil
	}
	s.sent[name] = sum
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every server can
	text = strings.NewReplacer("\r\n", "\ndata: ", "\r", "\ndata: ", "\n", "\ndata: ").Replace(text)
	_, err := s.Write([]byte("event: " + name + "\ndata: " + text + "\n\n"))
	return err
}
