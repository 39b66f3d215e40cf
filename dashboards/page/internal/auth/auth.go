// Package auth authorizes requests to a page: those with the page's token, or those that the program's
// own check accepts. Without either, it accepts only browsers on the same machine.
package auth

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

// Auth checks requests. Its fields are those of page.Options.
type Auth struct {
	Scope, Token string
	HTTPS        bool
	Authenticate func(*http.Request) (user string, ok bool)
}

// minToken is the smallest number of characters of a token. Wrong guesses are neither counted nor
// slowed down, so a longer token is better.
const minToken = 8

// Validate returns an error of the options.
func (a *Auth) Validate() error {
	switch {
	case a.Token != "" && utf8.RuneCountInString(a.Token) < minToken:
		return fmt.Errorf("page: Token: want at least %d characters", minToken)
	case a.Token != "" && a.Authenticate != nil:
		return errors.New("page: want Authenticate or a Token, not both")
	}
	return nil
}

// Protect calls next for authorized requests, with the user in the request's context, and refuse
// with a status code for all others.
func (a *Auth) Protect(next http.Handler, refuse func(w http.ResponseWriter, code int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, code := a.authorize(r)
		if code == 0 {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
			return
		}
		if code == http.StatusUnauthorized && a.Token != "" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
		}
		refuse(w, code)
	})
}

type userKey struct{}

// User returns the user of a request that Protect let through.
func User(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

// tokenUser is the user of every request with the token, in the changelog.
const tokenUser = "token"

// authorize returns the user of a request, or the status code to refuse it with: 401 if
// credentials would help, otherwise 403.
func (a *Auth) authorize(r *http.Request) (user string, code int) {
	switch {
	case a.Authenticate != nil:
		if user, ok := a.Authenticate(r); ok {
			return user, 0
		}
		return "", http.StatusUnauthorized
	case a.Token == "":
		if isLocal(r) {
			return "page", 0
		}
		return "", http.StatusForbidden
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	cookie, err := r.Cookie(cookieName(r))
	if strings.EqualFold(scheme, "Bearer") && a.isToken(token) || err == nil && equal(cookie.Value, a.cookie()) {
		return tokenUser, 0
	}
	return "", http.StatusUnauthorized
}

func (a *Auth) isToken(token string) bool { return a.Token != "" && equal(token, a.Token) }

// equal compares in constant time. It compares sums, so that lengths do not leak either.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

const cookieLifetime = 12 * time.Hour

// ExchangeToken gives a browser whose address has ?token=TOKEN a cookie, and redirects it to the
// address without the token. It reports whether it has answered the request.
func (a *Auth) ExchangeToken(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	if r.Method != http.MethodGet || !a.isToken(q.Get("token")) {
		return false
	}
	// Lax and not Strict, so that a link from a chat or an alert opens the page.
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: a.cookie(), MaxAge: int(cookieLifetime / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil || a.HTTPS,
	})
	q.Del("token")
	// Relative, because the prefix of the page is unknown.
	to := url.URL{Path: "./" + path.Base("/"+r.URL.Path), RawQuery: q.Encode()}
	if strings.HasSuffix(r.URL.Path, "/") || r.URL.Path == "" {
		to.Path = "./"
	}
	w.Header().Set("Location", to.String())
	w.WriteHeader(http.StatusSeeOther)
	return true
}

// cookie returns the value of the cookie. Replicas with the same token and scope share it.
func (a *Auth) cookie() string {
	mac := hmac.New(sha256.New, []byte(a.Token))
	mac.Write([]byte("headgate page\x00" + a.Scope))
	return hex.EncodeToString(mac.Sum(nil))
}

// cookieName has the port in it, because browsers share the cookies of all ports of a host.
func cookieName(r *http.Request) string {
	port, err := strconv.ParseUint((&url.URL{Host: r.Host}).Port(), 10, 16)
	if err != nil {
		return "headgate"
	}
	return "headgate-" + strconv.FormatUint(port, 10)
}

// isLocal reports whether a request comes from a browser on this machine and names a local host. It
// refuses names of other sites that resolve to this machine (DNS rebinding), and requests with a
// proxy's headers. It cannot recognize a proxy on this machine that sends no such header: a page
// behind such a proxy needs a token.
func isLocal(r *http.Request) bool {
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback() && isLoopback(r.Host)
}

// isLoopback reports whether a host, with or without a port, is a loopback address or a name that
// browsers resolve to one (RFC 6761, section 6.3).
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && addr.Unmap().IsLoopback()
}
