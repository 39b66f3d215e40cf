package page

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// How long a session lasts, which nothing makes longer, and what holds up those who
// guess.
const (
	// sessionLength is a working day: nobody types a token twice in it, and a browser
	// that is left open is out by the next.
	sessionLength = 12 * time.Hour
	wrongDelay    = time.Second // what a wrong guess costs
	wrongAtOnce   = 8           // guesses that may wait for their answer
)

// guard lets requests in: by a session's cookie, by an Authorization header for
// programs, by the program's own check, or, where there is nothing to check, from
// this machine alone.
//
// A session is kept nowhere: it is a cookie with its end, its user and a signature.
// So it works in every replica and over restarts, and it cannot be ended one by one,
// only all with another token or password.
//
// Who steals a cookie is let in until it ends, and can try at leisure which short
// token or password makes its signature: nothing slows that down but their length.
type guard struct {
	Options
	key    []byte        // that sessions are signed with: the same in all replicas
	cookie string        // its name, which another page of this host does not share
	wrong  chan struct{} // a place for each guess that waits
}

// newGuard makes the guard of a page. The key is made of the credentials; a part of its
// sum names the cookie, so that pages of one host with different ones do not sign
// each other's users out: cookies do not tell ports apart. Without credentials
// anybody could make the key; no session is looked at then.
func newGuard(o Options) *guard {
	key := sha256.Sum256([]byte("headgate page\x00" + o.Token + "\x00" + o.User + "\x00" + o.Password))
	name := sha256.Sum256(key[:])
	return &guard{Options: o, key: key[:], cookie: "headgate-" + hex.EncodeToString(name[:4]), wrong: make(chan struct{}, wrongAtOnce)}
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
		switch user, code := g.who(r); {
		case code == 0:
			next.ServeHTTP(w, r.WithContext(withUser(r.Context(), user)))
		case code == http.StatusForbidden:
			g.refuse(w, code, "Without a token this page answers only to browsers on the machine it runs on, under a name such as localhost. Give it a token, or a user and a password, to open it to others.")
		case code == http.StatusTooManyRequests:
			w.Header().Set("Retry-After", "1")
			g.refuse(w, code, "Too many wrong attempts at once. Try again in a second.")
		case g.credentials() && name == "sign-in" && r.Method == http.MethodPost:
			g.signIn(w, r)
		default:
			g.refuse(w, http.StatusUnauthorized, "")
		}
	})
}

// userKey is the key under which a request's context has its user.
type userKey struct{}

// withUser returns a context of a request by the user.
func withUser(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

// userOf is who made the request, for the changelog.
func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// who says whose the request is, or the code to refuse it with: 401 where signing in
// would help, 403 where nothing would, 429 where too many have guessed wrong.
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
	if user, ok := g.session(r); ok {
		return user, 0
	}
	return g.header(r)
}

// header checks the Authorization of a request that has one: a Bearer token, or a user
// and a password. A wrong one costs time, as at the sign-in, with which it shares the
// places to wait: there is no second door to guess at.
func (g *guard) header(r *http.Request) (user string, code int) {
	text := r.Header.Get("Authorization")
	if text == "" {
		return "", http.StatusUnauthorized
	}
	token, isToken := strings.CutPrefix(text, "Bearer ")
	name, password, isBasic := r.BasicAuth()
	// The user of a token is called token in the changelog: nobody knows more.
	if isToken && g.isToken(token) {
		return "token", 0
	}
	if isBasic && g.isUser(name, password) {
		return name, 0
	}
	if !g.delay(r.Context()) {
		return "", http.StatusTooManyRequests
	}
	return "", http.StatusUnauthorized
}

// delay makes a wrong guess cost time, and reports false where too many wait: that is
// wrongAtOnce guesses a second from all the world together, and no memory for those
// beyond. Right ones are not held up by it, since they are compared first: who floods
// the sign-in keeps out only those who mistype. The place is taken for the whole time,
// also by who hangs up: else a client that does not wait could guess as fast as it can.
func (g *guard) delay(ctx context.Context) bool {
	select {
	case g.wrong <- struct{}{}:
		time.AfterFunc(wrongDelay, func() { <-g.wrong })
	default:
		return false
	}
	select {
	case <-ctx.Done():
	case <-time.After(wrongDelay):
	}
	return true
}

// isToken reports whether it is the page's token. Without one none is.
func (g *guard) isToken(token string) bool { return g.Token != "" && same(token, g.Token) }

// isUser reports whether they are the page's user and password.
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

// signIn takes what was typed, and gives a session for it: a token, or a user and a
// password. Only the form counts and never the address, which stands in logs and in
// the browser's history.
//
// The cookie is for this site alone and out of reach of scripts. As it is Strict, a
// link from another site arrives without it and is shown the sign-in. Secure it is
// only where this process speaks TLS itself, which it cannot know of a proxy.
func (g *guard) signIn(w http.ResponseWriter, r *http.Request) {
	user, password := r.PostFormValue("user"), r.PostFormValue("password")
	ok := g.isUser(user, password)
	if token := r.PostFormValue("token"); !ok && g.isToken(token) {
		user, ok = "token", true
	}
	if !ok {
		if !g.delay(r.Context()) {
			g.refuse(w, http.StatusTooManyRequests, "Too many wrong attempts at once. Try again in a second.")
			return
		}
		g.refuse(w, http.StatusUnauthorized, "That was not right.")
		return
	}
	// Without a path the cookie is for the folder of the page.
	http.SetCookie(w, &http.Cookie{
		Name: g.cookie, Value: g.sign(user, time.Now().Add(sessionLength)), MaxAge: int(sessionLength / time.Second),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	// To the first view, whatever was asked for before: the form has no address in it
	// that somebody could have put there.
	redirect(w, "./")
}

// signOut takes the cookie from the browser. It remains valid elsewhere to its end, as
// nothing remembers which sessions there are.
func (g *guard) signOut(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{Name: g.cookie, MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	redirect(w, "./")
}

// sign is a session: until when in Unix seconds, whose in base64, so that no user's
// name has a dot in it, and a signature of both (HMAC-SHA256).
func (g *guard) sign(user string, until time.Time) string {
	text := strconv.FormatInt(until.Unix(), 10) + "." + base64.RawURLEncoding.EncodeToString([]byte(user))
	mac := hmac.New(sha256.New, g.key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// session says whose session a request has, if it has not ended and nobody has changed
// it: what it says is signed once more and must come out the same, to the last
// byte. So a second spelling of the same name or number is refused, too, and what the
// cookie holds is decoded before that but not believed.
func (g *guard) session(r *http.Request) (user string, ok bool) {
	cookie, err := r.Cookie(g.cookie)
	if err != nil {
		return "", false
	}
	seconds, rest, _ := strings.Cut(cookie.Value, ".")
	name, _, _ := strings.Cut(rest, ".")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	decoded, wrong := base64.RawURLEncoding.DecodeString(name)
	if err != nil || wrong != nil || !time.Now().Before(time.Unix(unix, 0)) {
		return "", false
	}
	return string(decoded), hmac.Equal([]byte(g.sign(string(decoded), time.Unix(unix, 0))), []byte(cookie.Value))
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
	// HTTP wants one of these with a 401. For Basic, browsers would open a window
	// of their own in front of the page's form.
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
	}
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
