// Package door lets requests in to a page: by its token, in an Authorization header or in a
// cookie, by a user and a password as HTTP Basic has them, by the program's own check, or,
// if there is nothing to check, from this machine alone.
package door

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Options say whom a door lets in, as those of a page do.
type Options struct {
	Scope                 string
	Token, User, Password string
	HTTPS                 bool
	Authenticate          func(*http.Request) (user string, ok bool)
}

// minSecret is how many characters a token or password has at least. Wrong guesses are
// neither counted nor slowed down, so a longer one is better.
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

// Credentials reports whether a token or a password opens the door.
func (o Options) Credentials() bool { return o.Token != "" || o.User != "" }

// Door lets requests in.
type Door struct{ Options }

// New is a door with options that are valid.
func New(o Options) *Door { return &Door{o} }

// Protect calls next for requests that may come in, with the user in the request's context,
// and refuse for all others, whatever address they ask for.
func (d *Door) Protect(next http.Handler, refuse func(w http.ResponseWriter, code int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, code := d.who(r)
		if code == 0 {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
			return
		}
		if code == http.StatusUnauthorized && d.User != "" {
			w.Header().Add("WWW-Authenticate", `Basic realm="headgate", charset="UTF-8"`) // browsers ask for both
		}
		if code == http.StatusUnauthorized && d.Token != "" {
			w.Header().Add("WWW-Authenticate", `Bearer realm="headgate"`)
		}
		refuse(w, code)
	})
}

type userKey struct{}

// User is the user whom Protect has let in.
func User(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// who returns the user who sends the request, or the status code to refuse the request with:
// 401 if credentials would help, and 403 if nothing would.
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
	if user, ok := d.authorized(r); ok {
		return user, 0
	}
	cookie, err := r.Cookie(cookieName(r))
	if err == nil && d.Token != "" && same(cookie.Value, d.cookie()) {
		return tokenUser, 0
	}
	return "", http.StatusUnauthorized
}

// tokenUser is the name of every user of the token in the changelog, because the token does
// not say more.
const tokenUser = "token"

// authorized returns the user of a request's Authorization header: a Bearer token, or a user
// and a password.
func (d *Door) authorized(r *http.Request) (user string, ok bool) {
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return tokenUser, d.isToken(token)
	}
	user, password, _ := r.BasicAuth()
	right := same(user, d.User) // both are compared, whichever is wrong
	return user, same(password, d.Password) && right && d.User != ""
}

func (d *Door) isToken(token string) bool { return d.Token != "" && same(token, d.Token) }

// same compares in a time that tells nothing of where, or in what length, the
// two differ: sums of one length are compared, not the texts.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// cookieLength is a working day.
const cookieLength = 12 * time.Hour

// Keep gives a browser whose address has the token, ?token=TOKEN, a cookie in its place, and
// sends it to the same address without the token. It reports whether it has answered.
func (d *Door) Keep(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	if r.Method != http.MethodGet || !d.isToken(q.Get("token")) {
		return false
	}
	// Scripts cannot read the cookie, and other sites cannot have it sent with a POST. It is Lax
	// and not Strict, so that a link from a chat or an alert opens the page. Only the operator
	// knows whether a proxy speaks TLS.
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: d.cookie(), MaxAge: int(cookieLength / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil || d.HTTPS,
	})
	q.Del("token")
	// Relative, because the prefix of the page is not known. A name cannot make it another site's.
	to := url.URL{Path: "./" + path.Base("/"+r.URL.Path), RawQuery: q.Encode()}
	if strings.HasSuffix(r.URL.Path, "/") || r.URL.Path == "" {
		to.Path = "./"
	}
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusSeeOther)
	return true
}

// cookie is what stands for the token in a cookie: it opens this scope's page and does not show
// the token. Every replica with the same token has the same, and another token ends it.
func (d *Door) cookie() string {
	mac := hmac.New(sha256.New, []byte(d.Token))
	mac.Write([]byte("headgate page\x00" + d.Scope))
	return hex.EncodeToString(mac.Sum(nil))
}

// cookieName keeps pages of one host apart by their ports, since cookies do not.
func cookieName(r *http.Request) string {
	port, err := strconv.ParseUint((&url.URL{Host: r.Host}).Port(), 10, 16)
	if err != nil {
		return "headgate"
	}
	return "headgate-" + strconv.FormatUint(port, 10)
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
