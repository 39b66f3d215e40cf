package page

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"
)

const (
	minToken       = 8 // smallest number of characters of a token
	cookieLifetime = 12 * time.Hour
)

// Guard wraps next with the page's authentication. It answers unauthorized requests with a 401 or
// 403 and a line of text. Use Guard for other handlers of the program, such as metrics.
func (p *Page) Guard(next http.Handler) http.Handler {
	return p.protect(next, func(w http.ResponseWriter, code int, why string) { http.Error(w, why, code) })
}

// protect calls next for authorized requests, with the user in the request's context. For all other
// requests it calls refuse.
func (p *Page) protect(next http.Handler, refuse func(w http.ResponseWriter, code int, why string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := p.authorize(r)
		switch {
		case ok:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		case p.Authenticate != nil:
			refuse(w, http.StatusUnauthorized, "You are not signed in.")
		case p.Token != "":
			w.Header().Set("WWW-Authenticate", `Bearer realm="headgate"`)
			refuse(w, http.StatusUnauthorized, "This page requires a token. Open it once with ?token=TOKEN: this browser remembers it for 12 hours. Programs send it as \"Authorization: Bearer TOKEN\".")
		default:
			refuse(w, http.StatusForbidden, "This page has no token, so it answers only requests from its own machine, at an address such as http://localhost. Set a token to open it to others.")
		}
	})
}

type userKey struct{}

// userOf returns the user of a request that protect let through, as the changelog names it.
func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

func (p *Page) authorize(r *http.Request) (user string, ok bool) {
	switch {
	case p.Authenticate != nil:
		return p.Authenticate(r)
	case p.Token == "":
		return "page", isLocal(r)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	cookie, err := r.Cookie(p.cookieName())
	return "token", strings.EqualFold(scheme, "Bearer") && equal(token, p.Token) || err == nil && equal(cookie.Value, p.cookieValue())
}

// equal compares hashes in constant time, so that neither the texts nor their lengths leak.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return hmac.Equal(x[:], y[:])
}

// exchangeToken gives a browser whose address has ?token=TOKEN a cookie, and redirects it to the
// address without the token. It reports whether it has answered the request.
func (p *Page) exchangeToken(w http.ResponseWriter, r *http.Request) bool {
	q := r.URL.Query()
	if r.Method != http.MethodGet || p.Token == "" || !equal(q.Get("token"), p.Token) {
		return false
	}
	// Lax and not Strict, so that a link from a chat or an alert opens the page.
	http.SetCookie(w, &http.Cookie{
		Name: p.cookieName(), Value: p.cookieValue(), MaxAge: int(cookieLifetime / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil || p.HTTPS,
	})
	q.Del("token")
	to := url.URL{Path: "./" + path.Base("/"+r.URL.Path), RawQuery: q.Encode()}
	if pageName(r) == "" {
		to.Path = "./"
	}
	redirect(w, to.String())
	return true
}

// cookieValue returns the value of the cookie. Pages with the same token and scope accept it.
func (p *Page) cookieValue() string {
	mac := hmac.New(sha256.New, []byte(p.Token))
	mac.Write([]byte("headgate page\x00" + p.queues.Scope()))
	return hex.EncodeToString(mac.Sum(nil))
}

// cookieName differs between tokens, because browsers share the cookies of all ports of a host.
func (p *Page) cookieName() string { return "headgate-" + p.cookieValue()[:8] }

// isLocal reports whether a request comes from a browser on this machine and names a local host. It
// refuses names of other sites that resolve to this machine (DNS rebinding), and requests with a
// proxy's headers. A page behind a proxy on this machine needs a token, because isLocal does not
// recognize every proxy.
func isLocal(r *http.Request) bool {
	for _, header := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() {
		return false
	}
	host := strings.ToLower((&url.URL{Host: r.Host}).Hostname())
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // RFC 6761, section 6.3
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
