// Package door lets requests in to a page: by a session's cookie, by an Authorization
// header for programs, by the program's own check, or, where there is nothing to check,
// from this machine alone.
package door

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/throttle"
)

// Options say whom a door lets in, as those of a page do.
type Options struct {
	Scope                 string
	Token, User, Password string
	HTTPS                 bool
	Authenticate          func(*http.Request) (user string, ok bool)
	Log                   *slog.Logger
}

// minSecret is how many characters a token or password has at least: at eight guesses a
// second a shorter one could be found.
const minSecret = 8

// Validate joins all that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	if o.Token != "" && utf8.RuneCountInString(o.Token) < minSecret {
		errs = append(errs, fmt.Errorf("page: Token: want at least %d characters", minSecret))
	}
	if o.Password != "" && utf8.RuneCountInString(o.Password) < minSecret {
		errs = append(errs, fmt.Errorf("page: Password: want at least %d characters", minSecret))
	}
	if (o.User == "") != (o.Password == "") {
		errs = append(errs, errors.New("page: want User and Password, or neither"))
	}
	if o.Authenticate != nil && o.Credentials() {
		errs = append(errs, errors.New("page: want Authenticate, or a Token or a User, not both"))
	}
	return errors.Join(errs...)
}

// Credentials reports whether there is something to sign in with.
func (o Options) Credentials() bool { return o.Token != "" || o.User != "" }

// Door lets requests in.
type Door struct {
	Options
	*sessions // nil where there are no credentials to sign with
	*guesses
}

// New is a door with options that are valid.
func New(o Options) *Door {
	d := &Door{Options: o, guesses: newGuesses(o.Log)}
	if o.Credentials() {
		d.sessions = newSessions(o)
	}
	return d
}

// Close logs the wrong guesses that were not logged yet.
func (d *Door) Close() { d.tell() }

// Protect lets in who may come in, with the user in the request's context, and has the
// others refused, at whatever address they asked for.
func (d *Door) Protect(next http.Handler, refuse func(w http.ResponseWriter, r *http.Request, code int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, code := d.who(r)
		if code == 0 {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
			return
		}
		d.challenge(w, code)
		refuse(w, r, code)
	})
}

// challenge says in the header what HTTP wants beside a code. For Basic, browsers
// would open a window of their own in front of the page's form.
func (d *Door) challenge(w http.ResponseWriter, code int) {
	switch {
	case code == http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	case code == http.StatusUnauthorized && d.Credentials():
		w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
	}
}

// SignIn takes what was typed, and gives a session for it: a token, or a user and a
// password. Only the form counts and never the address, which stands in logs and in
// the browser's history. Its code is 0, or why it has given none.
func (d *Door) SignIn(w http.ResponseWriter, r *http.Request) (code int) {
	user, password := r.PostFormValue("user"), r.PostFormValue("password")
	user, code = d.look(r, func() (string, bool) {
		if d.isUser(user, password) {
			return user, true
		}
		return "token", d.isToken(r.PostFormValue("token"))
	})
	if code != 0 {
		d.challenge(w, code)
		return code
	}
	d.setCookie(w, r, d.begin(user, time.Now().Add(sessionLength)), sessionLength)
	return 0
}

// SignOut takes the cookie from the browser. It remains valid elsewhere to its end, as
// nothing remembers which sessions there are.
func (d *Door) SignOut(w http.ResponseWriter, r *http.Request) {
	if _, err := r.Cookie(cookieName(r)); err == nil {
		d.setCookie(w, r, "", -time.Second)
	}
}

type userKey struct{}

// User is who Protect has let in.
func User(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// who says whose the request is, or the code to refuse it with: 401 where signing in
// would help, 403 where nothing would, 429 where it was not looked at, as too many from
// there have guessed wrong.
func (d *Door) who(r *http.Request) (user string, code int) {
	switch {
	case d.Authenticate != nil:
		if user, ok := d.Authenticate(r); ok {
			return user, 0
		}
		return "", http.StatusUnauthorized
	case !d.Credentials():
		if local(r) {
			return "page", 0
		}
		return "", http.StatusForbidden
	}
	cookie, err := r.Cookie(cookieName(r))
	if err == nil && d.knows(cookie.Value) {
		return live(cookie.Value)
	}
	authorization := r.Header.Get("Authorization")
	if err != nil && authorization == "" {
		return "", http.StatusUnauthorized // nothing is said, so nothing is guessed
	}
	session := false
	user, code = d.look(r, func() (string, bool) {
		if session = err == nil && d.proves(cookie.Value); session {
			return "", true
		}
		return d.authorized(r)
	})
	if session {
		return live(cookie.Value)
	}
	return user, code
}

// authorized says whose the Authorization of a request is: a Bearer token, or a user
// and a password. The user of a token is called token in the changelog: nobody knows
// more.
func (d *Door) authorized(r *http.Request) (user string, ok bool) {
	if token, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is {
		return "token", d.isToken(token)
	}
	user, password, _ := r.BasicAuth()
	return user, d.isUser(user, password)
}

func (d *Door) isToken(token string) bool { return d.Token != "" && same(token, d.Token) }

func (d *Door) isUser(user, password string) bool {
	right := same(user, d.User) // both are compared, whichever is wrong
	return same(password, d.Password) && right && d.User != ""
}

// same compares in a time that tells nothing of where, or in what length, the
// two differ: sums of one length are compared, not the texts.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
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

const (
	wrongDelay = time.Second // what a wrong guess costs
	// wrongTold is how often wrong guesses are logged.
	wrongTold = time.Minute
)

// How many wrong guesses may wait for their answer: of one address, and of all.
var (
	wrongHere  = throttle.Limit{Name: "here", Kind: throttle.SlidingLog, Rate: throttle.Rate{N: 8, Per: wrongDelay}}
	wrongInAll = throttle.Limit{Name: "in-all", Kind: throttle.SlidingLog, Rate: throttle.Rate{N: 64, Per: wrongDelay}}
)

// guesses is the one door that all credentials come through: tokens, passwords, and
// sessions that are not known. A wrong one has its sender wait, and while as many as
// may wait do, no other from there is looked at, right or wrong: else whoever asks fast
// enough could tell the right one from its answer. So eight a second are looked at from
// one address and 64 from all the world. Who has eight addresses can thereby keep
// others from signing in; who has signed in stays.
type guesses struct {
	log *slog.Logger

	mu      sync.Mutex
	waiting throttle.Local // of each address, and of all
	wrong   int            // since they were last logged
	unseen  int            // were not looked at since then
	last    string         // the address of the last of both
	told    *time.Timer    // until they are logged; nil where there are none
}

func newGuesses(log *slog.Logger) *guesses {
	g, start := &guesses{log: log}, time.Now()
	// By the time that has passed: a clock that is set back locks nobody out.
	g.waiting.Clock = func() time.Time { return start.Add(time.Since(start)) }
	if err := g.waiting.Define(context.Background(), wrongHere, wrongInAll); err != nil {
		panic(err) // of limits that stand above
	}
	return g
}

// look says whose a request is as right does, which must be quick, or the code to
// refuse it with: 401 if it was wrong, and then only after a second, or 429 if it was
// not looked at.
func (g *guesses) look(r *http.Request, right func() (user string, ok bool)) (user string, code int) {
	if user, code = g.try(r, right); code != http.StatusUnauthorized {
		return user, code
	}
	select {
	case <-r.Context().Done():
	case <-time.After(wrongDelay):
	}
	return "", code
}

// try is look without the wait. The place of a wrong guess is taken for the whole time,
// also by who hangs up.
func (g *guesses) try(r *http.Request, right func() (user string, ok bool)) (user string, code int) {
	places := []throttle.Need{{Limit: wrongHere.Name, Key: origin(r)}, {Limit: wrongInAll.Name}}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, place := range places {
		if d, err := g.waiting.Peek(r.Context(), place.Limit, place.Key); err != nil || d.Remaining == 0 {
			g.unseen++
			g.count(r)
			return "", http.StatusTooManyRequests
		}
	}
	if user, ok := right(); ok {
		return user, 0
	}
	_, _ = g.waiting.AllowAll(r.Context(), places...) // there is room, as was seen
	g.wrong++
	g.count(r)
	return "", http.StatusUnauthorized
}

// count has wrong guesses logged a minute after the first: a line for each would fill
// the log's disk at the guesser's pace.
func (g *guesses) count(r *http.Request) {
	g.last = r.RemoteAddr
	if g.told == nil {
		g.told = time.AfterFunc(wrongTold, g.tell)
	}
}

func (g *guesses) tell() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.told == nil {
		return
	}
	g.told.Stop()
	g.log.Warn("wrong attempts to sign in to the page", "wrong", g.wrong, "not looked at", g.unseen, "last from", g.last)
	g.wrong, g.unseen, g.told = 0, 0, nil
}

// origin is where a request comes from: an address, or of IPv6 the network of one
// customer, who has all of its addresses. Of what comes by a socket it is one place.
func origin(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr := from.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	return netip.PrefixFrom(addr, 64).Masked().String()
}
