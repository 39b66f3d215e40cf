package page

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// A view is a page that changes while somebody looks: from what was read in a turn
// and its own query it makes what its template shows. What it needs beside the
// snapshot it reads itself, with the ctx, for that query alone: a lane's jobs, a key.
type view struct {
	title string
	// make gives what the template shows as .Data. It must not change the snapshot.
	make func(ctx context.Context, p *Page, s *snapshot, at place) (any, error)
}

// views are those that there are, by their name in the address.
var views = map[string]*view{
	"":        {"Limits", makeLimits},
	"waiting": {"Waiting", makeWaiting},
	"job":     {"Job", makeJob},
	"jobs":    {"Jobs", makeList},
	"changes": {"Changes", makeChanges},
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
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	data, err := views[name].make(ctx, p, s, at)
	if err != nil {
		p.failRead(w, err)
		return
	}
	p.write(w, http.StatusOK, cmp.Or(name, "limits"), frame{Page: p, Title: views[name].title, View: name, Of: at.text, Live: true, Snap: s, Data: data})
}
