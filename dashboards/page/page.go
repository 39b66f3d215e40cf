package page

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/headgate/headgate/internal/inspect"
)

// Page is the handler of the page. It may be mounted at any prefix that ends with
// a slash, with http.StripPrefix: links are relative, so it need not know it. It is
// safe for concurrent use, as handlers are.
type Page struct {
	Options
	// queues are asynq's, in Options.Redis. Its Inspector takes no contexts, so its calls
	// end when they are answered, or by the Redis client's own timeouts.
	queues *inspect.Queues
	// reader has what all views share, and cache what one of them reads for its own
	// query. So neither grows with the number of those who look.
	reader   *reader
	guard    *guard
	redactor redactor
	cache    cache
	// handler is the way of a request: the check of where it comes from, then the
	// guard, then route.
	handler http.Handler
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
}

// New makes a page. It reads nothing before somebody looks. Its error joins all that
// is wrong with the options.
func New(o Options) (*Page, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	redactor, err := newRedactor(o.Redact)
	if err != nil {
		return nil, err
	}
	if o.Scope == "" {
		o.Scope = "default"
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	p := &Page{Options: o, queues: inspect.New(o.Redis, o.Limiter, o.Scope), redactor: redactor}
	// What is made for all who look must not end with the request of one of them.
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.reader = newReader(p.ctx, p)
	p.guard = newGuard(o)
	// A browser says which site a request comes from (Sec-Fetch-Site, or Origin). It
	// matters most where no cookie protects: on a page that lets in whoever is on
	// this machine, and where a browser sends a Basic password by itself. GET is
	// always let through, which is why nothing here is changed by one.
	p.handler = http.NewCrossOriginProtection().Handler(p.guard.protect(http.HandlerFunc(p.route)))
	return p, nil
}

// Close ends the streams of all who look, which http.Server's Shutdown waits for: so
// call it before, or have http.Server.RegisterOnShutdown call it. Requests are still
// answered then, but views that read for their query fail. It returns nil.
func (p *Page) Close() error {
	p.cancel()
	p.guard.guesses.tell()
	return nil
}

// ServeHTTP implements http.Handler. Nothing from other hosts is loaded into a page,
// no script stands in one, and nobody may frame it: a text that got into it unescaped
// could still run nothing. Posts from other sites are refused before anybody is asked
// who they are.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	// default-src is for what a page loads or runs, and says nothing of the other
	// three. base-uri keeps a <base> that got in from turning the relative links
	// elsewhere, form-action a form from taking along what is typed, and
	// frame-ancestors a site from hiding the page under what it wants clicked.
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	// The address of a view has keys and IDs of jobs in it.
	h.Set("Referrer-Policy", "same-origin")
	// What one user was shown is left in no cache. Assets say otherwise.
	h.Set("Cache-Control", "no-store")
	if strings.TrimPrefix(r.URL.Path, "/") == "" && !strings.HasSuffix(mount(r), "/") {
		redirect(w, path.Base(mount(r))+"/") // links are relative to the folder
		return
	}
	// The longest form names a job or a key. Longer ones fail when they are read.
	r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
	p.handler.ServeHTTP(w, r)
}

// mount is the path that the browser asked for, with the prefix that StripPrefix has
// taken away: RequestURI stays as it came. The browser resolves the page's links
// against that path, so it decides whether a slash is missing.
func mount(r *http.Request) string {
	at, err := url.ParseRequestURI(r.RequestURI)
	if err != nil || at.Path == "" {
		return r.URL.Path
	}
	return at.Path
}

// route answers a request that may come in. All pages stand in one folder, so
// that their links are the same at any prefix. A name is looked up as it is and never
// joined to a path, so there is nothing that dots or slashes in it could climb to.
// Of these only do and sign-out take a POST; sign-in is the guard's.
func (p *Page) route(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if asset, ok := strings.CutPrefix(name, "assets/"); ok {
		serveAsset(w, r, asset)
		return
	}
	switch {
	case name == "do":
		p.serveAction(w, r)
	case name == "sign-out" && r.Method == http.MethodPost:
		p.guard.signOut(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		p.fail(w, r, http.StatusMethodNotAllowed, "This page can only be read.")
	case name == "events":
		p.serveEvents(w, r)
	case name == "find":
		p.serveFind(w, r)
	case views[name] != nil:
		p.serveView(w, r, name)
	default:
		p.fail(w, r, http.StatusNotFound, "There is no such page.")
	}
}

// redirect sends the browser to another page of the folder, to be read with GET (303).
// The path is relative, as the prefix is not known; http.Redirect would make it absolute
// without it.
func redirect(w http.ResponseWriter, to string) {
	if to == "" {
		to = "./"
	}
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// fail answers with a page that says what is wrong. What it says is shown as it is, so
// foreign texts in it have been made visible and freed of secrets before.
func (p *Page) fail(w http.ResponseWriter, _ *http.Request, code int, says string) {
	p.write(w, code, "message", frame{Page: p, Title: http.StatusText(code), Data: says})
}

// frame is what every template gets: the page itself with its options, and what is
// this one's.
type frame struct {
	*Page
	Title string
	// View is the view's name, for the navigation; empty for the first one.
	View string
	// Of is the view and its query, as place writes them: what the script asks the
	// stream for, and where an action comes back to.
	Of string
	// Live is whether it changes while somebody looks.
	Live bool
	// Snap is nil on pages that show nothing of Redis: messages, the sign-in, and
	// the questions before an action.
	Snap *snapshot
	// Data is what the template shows. Around a live part it is that part, made
	// before and the same bytes as the stream has, so what it says is not made twice.
	Data any
}

// write executes a whole page, into memory first: one that cannot be made is an error
// to the browser and no half of a page.
func (p *Page) write(w http.ResponseWriter, code int, name string, f frame) {
	var out bytes.Buffer
	if err := execute(&out, name, "page", f); err != nil {
		p.Log.Error("the page could not be made", "page", name, "error", err)
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes()) // who has left needs no answer
}
