package page

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/headgate/headgate/dashboards/page/internal/auth"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/waitdb"
)

// New makes a page. It reads nothing before somebody looks. Its error joins all that
// is wrong with the options.
func New(o Options) (*Page, error) {
	o.Scope = cmp.Or(o.Scope, "default")
	o.Log = cmp.Or(o.Log, slog.Default())
	access := &auth.Auth{
		Scope: o.Scope, Token: o.Token, User: o.User, Password: o.Password,
		HTTPS: o.HTTPS, Authenticate: o.Authenticate,
	}
	redactor, err := newRedactor(o.Redact)
	err = errors.Join(access.Validate(), err)
	if o.Redis == nil || o.Limiter == nil {
		err = errors.Join(errors.New("page: Redis and Limiter are required"), err)
	}
	if err != nil {
		return nil, err
	}
	p := &Page{Options: o, queues: inspect.New(o.Redis, waitdb.New(o.Limiter), o.Scope), redactor: redactor, auth: access}
	// What is made for all who look must not end with the request of one of them.
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.reader = newReader(p.ctx, state{rdb: o.Redis, scope: o.Scope, queues: p.queues, known: inspect.Snapshot{KeyOf: o.KeyOf}})
	p.routed = p.auth.Protect(http.HandlerFunc(p.route), func(w http.ResponseWriter, code int) {
		_, says := p.refused(code)
		p.fail(w, code, says)
	})
	// A browser says which site a request comes from (Sec-Fetch-Site, or Origin). It
	// matters most where no cookie protects: on a page that lets in whoever is on
	// this machine, and where a browser sends a Basic password by itself. GET is
	// always let through, which is why nothing here is changed by one.
	p.handler = http.NewCrossOriginProtection().Handler(http.HandlerFunc(p.enter))
	return p, nil
}

// Close ends what the page reads for all who look. Requests are still answered then, with what was
// read before, but views that read for their query fail. It returns nil.
func (p *Page) Close() error {
	p.cancel()
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
	if nameOf(r) == "" && !strings.HasSuffix(mount(r), "/") {
		to := url.URL{Path: path.Base(mount(r)) + "/", RawQuery: r.URL.RawQuery} // links are relative to the folder
		redirect(w, to.String())
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

// nameOf is which page is asked for. All pages stand in one folder, so that their links
// are the same at any prefix. A name is looked up as it is and never joined to a path, so
// there is nothing that dots or slashes in it could climb to.
func nameOf(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// enter answers requests for assets and those with the token in their address, and all others
// only if they may come in. Assets are the same in every copy of this program, and the refusal
// needs them. Without credentials a wrong address and a right one get the same answer.
func (p *Page) enter(w http.ResponseWriter, r *http.Request) {
	if asset, ok := strings.CutPrefix(nameOf(r), "assets/"); ok && p.auth.HasCredentials() {
		serveAsset(w, r, asset)
		return
	}
	if !p.auth.ExchangeToken(w, r) {
		p.routed.ServeHTTP(w, r)
	}
}

// refused says in a program's terms why a request is not let in, and in a browser's what to do.
// Neither needs Redis.
func (p *Page) refused(code int) (program, browser string) {
	switch {
	case code == http.StatusForbidden:
		return "this is for programs on the machine it runs on that ask for a name such as localhost",
			"Without a token this page answers only to browsers on the machine it runs on, under a name such as localhost. Give it a token, or a user and a password, to open it to others."
	case p.Authenticate != nil:
		return "you are not signed in", "You are not signed in."
	case p.Token == "":
		return "want the page's user and password", "Reload the page, and give its user and password."
	}
	return `want the page's token in "Authorization: Bearer TOKEN", or its user and password`,
		"This page wants its token. Add it to the address once, as in ?token=TOKEN: this browser remembers it for 12 hours. Programs send it as \"Authorization: Bearer TOKEN\"."
}

// Guard calls next for requests that the page lets in, and tells others in a line of text what
// is missing: for what a program serves beside the page, such as metrics.
func (p *Page) Guard(next http.Handler) http.Handler {
	return p.auth.Protect(next, func(w http.ResponseWriter, code int) {
		says, _ := p.refused(code)
		http.Error(w, says, code)
	})
}

// route answers a request that may come in. Of these pages only do takes a POST.
func (p *Page) route(w http.ResponseWriter, r *http.Request) {
	name := nameOf(r)
	if asset, ok := strings.CutPrefix(name, "assets/"); ok {
		serveAsset(w, r, asset)
		return
	}
	switch {
	case name == "do":
		p.serveAction(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		p.fail(w, http.StatusMethodNotAllowed, "This page can only be read.")
	case name == "find":
		p.serveFind(w, r)
	case views[name] != nil:
		p.serveView(w, r, name)
	default:
		p.fail(w, http.StatusNotFound, "There is no such page.")
	}
}
