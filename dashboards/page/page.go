package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/safelog"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/usercode"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// Options configure a page. Limiter is required.
type Options struct {
	// Limiter is a limiter in the Redis of the asynq queues. The page shows its scope.
	Limiter *throttle.Limiter
	// Shards are the queues with shards, as those of the server. The page shows each queue and each of
	// its limits once, and an action on a limit changes all of its parts.
	Shards []scheduler.Shards
	// KeyOf returns the expression of a limit's key, such as "host(payload.url)", or the empty text
	// if the limit has no keys. If KeyOf is nil, the expressions are unknown.
	KeyOf func(limit string) (by string, known bool)
	// NormalizeKey normalizes a key of a limit that a user typed, as the rules of jobs do. If
	// NormalizeKey is nil, the page does not normalize keys.
	NormalizeKey func(limit, key string) (string, error)

	// Token gives access: see the package documentation. It has at least eight characters; thirty
	// are better. A page behind a proxy needs a token, because some proxies look like a browser on
	// this machine.
	Token string
	// HTTPS makes the cookie Secure. Set it if a proxy terminates TLS.
	HTTPS bool
	// Authenticate replaces the Token. The page calls Authenticate for every request, and refuses
	// the request if ok is false. The changelog names the returned user.
	Authenticate func(*http.Request) (user string, ok bool)
	// ReadOnly removes all actions.
	ReadOnly bool
	// Redact names more fields of payloads and headers whose values the page hides. Upper and lower
	// case are the same, and * matches any text. Authorization, cookies and names like password,
	// secret, token or api key are always hidden.
	Redact []string
	// Log records changes and errors. The default is slog.Default.
	Log *slog.Logger
}

// Page is an http.Handler. Mount it with http.StripPrefix at any prefix that ends with a slash. It is
// safe for concurrent use.
type Page struct {
	Options
	queues   *inspect.Queues
	reader   *reader
	redactor redactor
	handler  http.Handler
}

// New returns a page, which reads nothing before the first request. The error of New joins all errors
// of the options.
func New(o Options) (*Page, error) {
	o.Log = safelog.New(cmp.Or(o.Log, slog.Default()))
	o.guardFunctions()
	var errs []error
	if o.Limiter == nil {
		errs = append(errs, errors.New("page: Limiter is required"))
	}
	if o.Token != "" && utf8.RuneCountInString(o.Token) < minToken {
		errs = append(errs, fmt.Errorf("page: Token: want at least %d characters", minToken))
	}
	if o.Token != "" && o.Authenticate != nil {
		errs = append(errs, errors.New("page: want Authenticate or a Token, not both"))
	}
	secrets, err := redact.New(o.Redact)
	if err != nil {
		errs = append(errs, fmt.Errorf("page: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	waits := waitdb.New(o.Limiter)
	p := &Page{Options: o, queues: inspect.New(waits), redactor: redactor{secrets}}
	p.queues.KeyOf, p.queues.Sharded = o.KeyOf, shard.Queues{}
	for _, q := range o.Shards { // the server has checked them
		p.queues.Sharded[q.Queue] = shard.Queue{Name: q.Queue, Count: q.Count, ByKey: q.ByKey, Divided: q.Divided}
	}
	rdb, prefix := waits.Scope()
	// Its log lines would repeat those of the worker.
	p.reader = newReader(p.queues, redishealth.New(slog.New(slog.DiscardHandler), "Redis", rdb, prefix))
	routed := p.protect(http.HandlerFunc(p.route), p.fail)
	// Refuse POSTs from other sites. No GET changes anything.
	p.handler = http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asset, ok := strings.CutPrefix(pageName(r), "assets/"); ok {
			serveAsset(w, r, asset) // public, because the page of a 401 needs the assets
		} else if !p.exchangeToken(w, r) {
			routed.ServeHTTP(w, r)
		}
	}))
	return p, nil
}

// guardFunctions replaces the program's functions by calls that return after readTimeout at the
// latest. A hanging KeyOf would stop all viewers, because they share its result. If a function
// fails, a request is refused, and a key is unknown.
func (o *Options) guardFunctions() {
	type keyResult struct {
		by    string
		known bool
	}
	if keyOf := o.KeyOf; keyOf != nil {
		o.KeyOf = func(limit string) (string, bool) {
			r, _ := usercode.Call(context.Background(), readTimeout, o.Log, "KeyOf", func() (r keyResult, _ error) { r.by, r.known = keyOf(limit); return r, nil })
			return r.by, r.known
		}
	}
	if normalize := o.NormalizeKey; normalize != nil {
		o.NormalizeKey = func(limit, key string) (string, error) {
			return usercode.Call(context.Background(), readTimeout, o.Log, "NormalizeKey", func() (string, error) { return normalize(limit, key) })
		}
	}
	type userResult struct {
		user string
		ok   bool
	}
	if authenticate := o.Authenticate; authenticate != nil {
		o.Authenticate = func(request *http.Request) (string, bool) {
			r, _ := usercode.Call(request.Context(), readTimeout, o.Log, "Authenticate", func() (r userResult, _ error) { r.user, r.ok = authenticate(request); return r, nil })
			return r.user, r.ok
		}
	}
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // addresses contain keys and IDs
	h.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
	p.handler.ServeHTTP(w, r)
}

// pageName returns the name of the requested page.
func pageName(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// redirect sends the browser to a relative address. http.Redirect would make it absolute, without
// the unknown prefix.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

func (p *Page) route(w http.ResponseWriter, r *http.Request) {
	switch name := pageName(r); {
	case name == "do":
		p.serveAction(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		p.fail(w, http.StatusMethodNotAllowed, "This page is read-only.")
	case name == "find":
		p.serveFind(w, r)
	case views[name].load != nil:
		p.serveView(w, r, name)
	default:
		p.fail(w, http.StatusNotFound, "There is no such page.")
	}
}

// views are the views by their name in the address. load returns the .Data of the template. It must
// not change the snapshot.
var views = map[string]struct {
	title string
	load  func(ctx context.Context, p *Page, s *snapshot, at address) (any, error)
}{
	"":        {"Limits", loadLimits},
	"waiting": {"Waiting", loadWaiting},
	"job":     {"Job", loadJob},
	"jobs":    {"Jobs", loadJobs},
	"changes": {"Changes", loadChanges},
}

// serveView renders a view. If Redis is down, the view shows the last snapshot. A view that must
// read more than a snapshot then gets a 503.
func (p *Page) serveView(w http.ResponseWriter, r *http.Request, name string) {
	at := address{name, r.URL.Query()}
	if len(at.String()) > maxQuery {
		p.fail(w, http.StatusRequestURITooLong, "The address is too long.")
		return
	}
	s := p.reader.latest(r.Context())
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	data, err := views[name].load(ctx, p, s, at)
	if err != nil {
		p.failRead(w, err)
		return
	}
	p.write(w, http.StatusOK, cmp.Or(name, "limits"), frame{Title: views[name].title, View: name, Address: at.String(), Live: true, Snap: s, Data: data})
}

// frame is the data of every template.
type frame struct {
	*Page
	redactor
	Scope   string
	Title   string
	View    string    // name of the view, for the navigation
	Address string    // relative address of the view, to which actions return
	Live    bool      // the browser's script updates the view
	Snap    *snapshot // nil if the page shows no data
	Data    any
}

// write renders a page in memory and sends it, or sends a 500 if rendering fails.
func (p *Page) write(w http.ResponseWriter, code int, name string, f frame) {
	f.Page, f.redactor, f.Scope = p, p.redactor, p.queues.Scope()
	var out bytes.Buffer
	if err := templates()[name].ExecuteTemplate(&out, "page", f); err != nil {
		p.Log.Error("the page could not be rendered", "page", name, "error", err)
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes())
}

// fail sends an error page. text must not contain secrets.
func (p *Page) fail(w http.ResponseWriter, code int, text string) {
	p.write(w, code, "message", frame{Title: http.StatusText(code), Data: text})
}

func (p *Page) failRead(w http.ResponseWriter, err error) {
	if err = p.reader.cause(err); errors.Is(err, errSlow) {
		p.Log.Warn("a view of the page could not be read in time", "within", readTimeout)
		p.fail(w, http.StatusServiceUnavailable, sentence(err))
		return
	}
	p.Log.Warn("the page cannot read Redis", "error", err)
	p.fail(w, http.StatusServiceUnavailable, "Redis cannot be read: "+p.redactor.Clean(err.Error(), 300))
}
