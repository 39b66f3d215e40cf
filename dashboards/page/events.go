package page

import (
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
		p.fail(w, r, http.StatusBadRequest, sentence(err))
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
	if _, err := w.Write([]byte("retry: 1000\n\n")); err != nil {
		return
	}
	stream := stream{ResponseWriter: w, control: http.NewResponseController(w), sent: map[string]uint64{}}
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
	name  string
	bytes []byte
	sum   uint64
}

var (
	seed      = maphash.MakeSeed()
	eventLine = strings.NewReplacer("\r\n", "\ndata: ", "\r", "\ndata: ", "\n", "\ndata: ")
)

func newEvent(name, text string) event {
	bytes := []byte("event: " + name + "\ndata: " + eventLine.Replace(text) + "\n\n")
	return event{name, bytes, maphash.Bytes(seed, bytes)}
}

// stream is a viewer's connection.
type stream struct {
	http.ResponseWriter
	control *http.ResponseController
	sent    map[string]uint64
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
