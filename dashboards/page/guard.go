package page

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// guard lets requests in: by a session's cookie, by an Authorization header for
// programs, by the program's own check, or, where there is nothing to check, from
// this machine alone.
type guard struct {
	Options
	*sessions // nil where there are no credentials to sign with
	guesses   guesses
}

func newGuard(o Options) *guard {
	g := &guard{Options: o, guesses: guesses{log: o.Log}}
	if o.credentials() {
		g.sessions = newSessions(o)
	}
	return g
}

// protect lets in who may come in, with the user in the request's context, and shows
// the others where to sign in, at whatever address they asked for. It tells them
// nothing of which pages there are: without a session a wrong address and a right
// one get the same answer. Assets are the same in every copy of this program.
func (g *guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if asset, ok := strings.CutPrefix(name, "assets/"); ok && g.credentials() {
			serveAsset(w, r, asset) // the page to sign in needs them
			return
		}
		if g.credentials() && name == "sign-in" && r.Method == http.MethodPost {
			g.signIn(w, r) // with what was typed: what else the request has does not count
			return
		}
		switch user, code := g.who(r); code {
		case 0:
			next.ServeHTTP(w, r.WithContext(withUser(r.Context(), user)))
		case http.StatusForbidden:
			g.refuse(w, code, "Without a token this page answers only to browsers on the machine it runs on, under a name such as localhost. Give it a token, or a user and a password, to open it to others.")
		case http.StatusTooManyRequests:
			g.refuse(w, code, tooMany)
		default:
			g.forget(w, r) // a session that is none costs the browser a second each time
			g.refuse(w, http.StatusUnauthorized, "")
		}
	})
}

// Guard lets in to next whom the page lets in, and tells others no more than that they may
// not, in a line of text: for what a program serves beside the page, such as metrics.
func (p *Page) Guard(next http.Handler) http.Handler {
	g := p.guard
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, code := g.who(r)
		if code == 0 {
			next.ServeHTTP(w, r.WithContext(withUser(r.Context(), user)))
			return
		}
		g.challenge(w, code)
		http.Error(w, refused[code], code)
	})
}

// refused says why a request is not let in where there is no form to sign in with.
var refused = map[int]string{
	http.StatusUnauthorized:    "want the page's token in \"Authorization: Bearer TOKEN\", or its user and password",
	http.StatusForbidden:       "this is for programs on the machine it runs on that ask for a name such as localhost",
	http.StatusTooManyRequests: tooMany,
}

// challenge says in the header what HTTP wants beside a code. For Basic, browsers
// would open a window of their own in front of the page's form.
func (g *guard) challenge(w http.ResponseWriter, code int) {
	switch {
	case code == http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	case code == http.StatusUnauthorized && g.credentials():
		w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
	}
}

type userKey struct{}

func withUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// who says whose the request is, or the code to refuse it with: 401 where signing in
// would help, 403 where nothing would, 429 where it was not looked at, as too many from
// there have guessed wrong.
func (g *guard) who(r *http.Request) (user string, code int) {
	switch {
	case g.Authenticate != nil:
		if user, ok := g.Authenticate(r); ok {
			return user, 0
		}
		return "", http.StatusUnauthorized
	case !g.credentials():
		if local(r) {
			return "page", 0
		}
		return "", http.StatusForbidden
	}
	cookie, err := r.Cookie(cookieName(r))
	if err == nil && g.knows(cookie.Value) {
		return live(cookie.Value)
	}
	authorization := r.Header.Get("Authorization")
	if err != nil && authorization == "" {
		return "", http.StatusUnauthorized // nothing is said, so nothing is guessed
	}
	session := false
	user, code = g.guesses.look(r, func() (string, bool) {
		if session = err == nil && g.proves(cookie.Value); session {
			return "", true
		}
		return g.authorized(r)
	})
	if session {
		return live(cookie.Value)
	}
	return user, code
}

// authorized says whose the Authorization of a request is: a Bearer token, or a user
// and a password. The user of a token is called token in the changelog: nobody knows
// more.
func (g *guard) authorized(r *http.Request) (user string, ok bool) {
	if token, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is {
		return "token", g.isToken(token)
	}
	user, password, _ := r.BasicAuth()
	return user, g.isUser(user, password)
}

// isToken reports whether it is the page's token. Without one none is.
func (g *guard) isToken(token string) bool { return g.Token != "" && same(token, g.Token) }

func (g *guard) isUser(user, password string) bool {
	right := same(user, g.User) // both are compared, whichever is wrong
	return same(password, g.Password) && right && g.User != ""
}

// same compares in a time that tells nothing of where, or in what length, the
// two differ: sums of one length are compared, not the texts.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// refuse shows where to sign in, or why that cannot be done. Its Page has options and
// nothing else: what it shows needs no Redis, so signing in works without it.
func (g *guard) refuse(w http.ResponseWriter, code int, says string) {
	p := &Page{Options: g.Options}
	if p.Options.Authenticate != nil || !g.credentials() {
		if says == "" {
			says = "You are not signed in."
		}
		p.write(w, code, "message", frame{Page: p, Title: "Not for you", Data: says})
		return
	}
	g.challenge(w, code)
	p.write(w, code, "sign-in", frame{Page: p, Title: "Sign in", Data: says})
}

// local reports whether a request comes from this machine to a name of this
// machine. A name of another site that leads here (DNS rebinding) is none, nor
// is a request that a proxy passes on.
//
// A proxy on this machine that says nothing of itself, and asks for this page by a
// local name, is taken for a browser here, and so is the whole world behind it: nginx
// does that until it is told to set X-Forwarded-For. Such a page needs a token. An SSH
// tunnel is the same case, and meant.
func local(r *http.Request) bool {
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback() && isLoopback(r.Host)
}

// isLoopback reports whether a host, with or without a port, is this machine: an
// address of it, or a name that browsers lead there without asking (RFC 6761 6.3).
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && addr.Unmap().IsLoopback()
}
