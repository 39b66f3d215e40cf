package page

import (
	"bytes"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A view is a page that changes while somebody looks: from what was read in a turn
// and its own query it makes what its template shows. What it needs beside the
// snapshot it reads itself, with the ctx, for that query alone: a lane's jobs, a key.
//
// So three things are kept, each for its own while: the snapshot, a turn long, for all;
// what a view has read for a query, again long, which may outlast a turn; and the HTML
// of a place, as long as the snapshot that it was made of. Of two viewers of one place
// the second costs nothing but the bytes that are sent.
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
	"workers":   {"Workers", makeWorkers, 5 * time.Second},
	"crawls":    {"Crawls", makeCrawls, 5 * time.Second},
}

// parameters are what a view's query may have: the limit that is open, what its keys
// are searched by, the page of a list, a lane by its name, a job by queue and ID, and which
// jobs are meant, from where in their list on; how far back the history goes; and a crawl.
var parameters = append([]string{"open", "q", "page", "lane", "id", "from", "past", "crawl"}, filterWords...)

// maxQuery bounds what a query may say, in bytes: it is a key of the cache. A lane's
// name is the longest that a link has.
const maxQuery = 4 << 10

// errQuery is about a query longer than that.
var errQuery = errors.New("the address is too long")

// place is a view with its query: each has one text, whatever else was asked. By that
// text viewers of the same share what is made, so parameters that no view knows are
// left out, and the others come in one order, that of their names. It fails only for
// what is too long.
func place(name string, q url.Values) (string, url.Values, error) {
	known := url.Values{}
	for _, parameter := range parameters {
		if value := q.Get(parameter); value != "" {
			known.Set(parameter, value)
		}
	}
	text := name
	if len(known) > 0 {
		text += "?" + known.Encode()
	}
	if len(text) > maxQuery {
		return "", nil, errQuery
	}
	return text, known, nil
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

// rendered is the part of a view that changes, made once for all who look at it by the
// first of them, while the others wait.
type rendered struct {
	once sync.Once
	html template.HTML
	// event is the same for those who look on.
	event event
	err   error
}

// live makes the part of a view that changes. Who made it does not matter: it is bound
// to the page and not to a request, so that one viewer who leaves does not spoil it for
// the others. Nothing in it may depend on who looks. A view that failed has failed for
// this snapshot, and is tried again in a later turn.
func (p *Page) live(s *snapshot, name string, q url.Values) (*rendered, error) {
	of, q, err := place(name, q)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	r := s.views[of]
	if r == nil {
		r = &rendered{}
		s.views[of] = r
	}
	s.mu.Unlock()
	// Another viewer of the same place waits here for the first, and those of other
	// places do not.
	r.once.Do(func() {
		ctx, cancel := context.WithTimeout(p.ctx, readTimeout)
		defer cancel()
		v := views[name]
		data, err := p.cache.get(strconv.Itoa(s.changed)+" "+of, v.again, func() (any, error) { return v.make(ctx, p, s, q) })
		if err != nil {
			r.err = err
			return
		}
		var out bytes.Buffer
		f := frame{Page: p, Title: v.title, View: name, Of: of, Snap: s, Data: data, Live: true}
		r.err = execute(&out, templateOf(name), "live", f)
		r.html = template.HTML(out.String())
		r.event = newEvent("live", out.String())
	})
	return r, r.err
}

// templateOf is the template of a view, which has its name; that of the first is limits.
func templateOf(view string) string {
	if view == "" {
		return "limits"
	}
	return view
}

// serveView answers with a whole page, which then keeps itself up to date. Where Redis
// is away it has what was known before, and says so: an operator needs it most then. A
// view that must read for its query is an error with 503 instead.
func (p *Page) serveView(w http.ResponseWriter, r *http.Request, name string) {
	s := p.reader.latest(r.Context())
	if s.Err != nil && s.Now.IsZero() {
		p.Log.Warn("the page cannot read Redis", "error", s.Err)
	}
	live, err := p.live(s, name, r.URL.Query())
	if err != nil {
		p.failRead(w, r, err)
		return
	}
	of, _, _ := place(name, r.URL.Query())
	p.write(w, http.StatusOK, templateOf(name), frame{Page: p, Title: views[name].title, View: name, Of: of, Live: true, Snap: s, Data: live.html})
}

// failRead answers where Redis cannot be read, with 503, or where the query is too long,
// with 414. The error is shown as any foreign text is: without secrets, and cut.
func (p *Page) failRead(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errQuery) {
		p.fail(w, r, http.StatusRequestURITooLong, sentence(errQuery))
		return
	}
	p.Log.Warn("the page cannot read Redis", "error", err)
	p.fail(w, r, http.StatusServiceUnavailable, "Redis cannot be read: "+visible(p.redactor.text(err.Error()), 300))
}

// cache keeps what views have read for a moment, for others and for later turns. It
// bounds what many viewers with a query each can ask of Redis: maxReads at a time.
// Those beyond wait for a slot, and that counts against their readTimeout.
type cache struct {
	mu    sync.Mutex
	kept  map[string]*cached // by place, after the number of the last change
	slots chan struct{}      // one word for each read that is underway
}

// cached is what was read once, or is being read.
type cached struct {
	once sync.Once
	// until counts from the beginning of the read, so what took long is soon old.
	until time.Time
	// value is what a view makes, and is shown to many: nobody changes it.
	value any
	err   error
}

// maxReads bounds how many views read at the same time, so that a crowd takes a few of
// the client's connections and not all; maxCached, how many are remembered, which is
// memory: each is a page of a list.
const (
	maxReads  = 4
	maxCached = 300
)

// get is what read returned less than a while ago, or returns now. Who asks for the
// same while it is read waits for it. An error is kept as long as a value. Beyond
// maxCached that are still good nothing more is kept, and everyone reads alone.
func (c *cache) get(key string, good time.Duration, read func() (any, error)) (any, error) {
	// There is nothing to spare Redis.
	if good == 0 {
		return read()
	}
	c.mu.Lock()
	if c.kept == nil {
		c.kept, c.slots = map[string]*cached{}, make(chan struct{}, maxReads)
	}
	now := time.Now()
	kept := c.kept[key]
	if kept == nil || now.After(kept.until) {
		// Only when it is full is anything thrown away: there is nothing that has to run
		// while nobody looks.
		if len(c.kept) >= maxCached {
			for old, k := range c.kept {
				if now.After(k.until) {
					delete(c.kept, old)
				}
			}
		}
		kept = &cached{until: now.Add(good - good/10)} // turns are not quite even
		if len(c.kept) < maxCached {
			c.kept[key] = kept
		}
	}
	c.mu.Unlock()
	kept.once.Do(func() {
		c.slots <- struct{}{}
		defer func() { <-c.slots }()
		kept.value, kept.err = read()
	})
	return kept.value, kept.err
}

type pages struct {
	// Page counts from 1, and may lie beyond the end; Size is how many a page has, and
	// Total how many there are in all.
	Page, Size, Total int
	// Of is the place, without its page.
	Of string
}

// newPages reads the page from a query. What is no page is the first, and so is one
// beyond a million, of which the offset could overflow. The total is set when it is
// known. The query may be shared, so it is copied.
func newPages(name string, q url.Values, size int) pages {
	n, err := strconv.Atoi(q.Get("page"))
	if err != nil || n < 1 || n > 1_000_000 {
		n = 1
	}
	rest := url.Values{}
	for key, values := range q {
		if key != "page" {
			rest[key] = slices.Clone(values)
		}
	}
	of, _, _ := place(name, rest)
	return pages{Page: n, Size: size, Of: of}
}

// offset is how many come before the page.
func (p pages) offset() int { return (p.Page - 1) * p.Size }

// From is the number of the first that is shown, counted from 1; 0 of none.
func (p pages) From() int { return min(p.offset()+1, p.Total) }

// To is the number of the last that is shown.
func (p pages) To() int { return min(p.offset()+p.Size, p.Total) }

// Many reports whether there is more than one page.
func (p pages) Many() bool { return p.Total > p.Size || p.Page > 1 }

// Before is the address of the page before, or empty.
func (p pages) Before() string {
	if p.Page < 2 {
		return ""
	}
	return p.at(p.Page - 1)
}

// After is the address of the next page, or empty.
func (p pages) After() string {
	if p.To() >= p.Total {
		return ""
	}
	return p.at(p.Page + 1)
}

func (p pages) at(n int) string {
	glue := "?"
	if strings.Contains(p.Of, "?") {
		glue = "&"
	}
	return "./" + p.Of + glue + "page=" + strconv.Itoa(n)
}

// window is the part of a list that a page shows: nothing beyond its end.
func window[T any](list []T, p pages) []T {
	from := min(p.offset(), len(list))
	return list[from:min(from+p.Size, len(list))]
}
