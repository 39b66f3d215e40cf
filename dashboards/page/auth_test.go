package page_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/throttle"
)

const sesame = "open sesame"

// locked returns a page with a token.
func locked(t *testing.T, rdb redis.UniversalClient, change func(*page.Options)) *page.Page {
	t.Helper()
	o := page.Options{Limiter: throttle.New(rdb, throttle.Options{}), Token: sesame, Log: quiet}
	if change != nil {
		change(&o)
	}
	p, err := page.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// from returns a request for a missing page, which answers 404 only to authorized requests.
func from(addr string, change func(*http.Request)) *http.Request {
	r := request("GET", "/nothing", nil)
	r.RemoteAddr, r.Host = addr, "headgate.example:9090"
	if change != nil {
		change(r)
	}
	return r
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// TestToken: a program sends it as a Bearer token. Refusals say what the page wants.
func TestToken(t *testing.T) {
	p := locked(t, offline(), nil)
	guarded := p.Guard(http.NotFoundHandler())
	for value, want := range map[string]int{
		"": 401, "Bearer open sesame": 404, "Bearer open sesam": 401, "Bearer ": 401, "Bearer": 401,
		"Basic b3BlbiBzZXNhbWU=": 401, "Digest x": 401,
	} {
		r := from("192.0.2.7:1", func(r *http.Request) { r.Header.Set("Authorization", value) })
		got, beside := ask(p, r), ask(guarded, r)
		if got.StatusCode != want || beside.StatusCode != want {
			t.Errorf("Authorization %q: %d, and %d beside the page, want %d", value, got.StatusCode, beside.StatusCode, want)
		}
		if challenges := got.Header.Values("WWW-Authenticate"); want == 401 && len(challenges) != 1 {
			t.Errorf("Authorization %q is answered with the challenges %q, want Bearer", value, challenges)
		}
		if text := body(t, got); want == 401 && !strings.Contains(text, "?token=TOKEN") {
			t.Errorf("Authorization %q: the refusal does not say what the page wants:\n%s", value, text)
		}
	}
}

// TestToken_InAddress: an address with the token sets a cookie, and redirects to the address without it.
func TestToken_InAddress(t *testing.T) {
	p := locked(t, offline(), nil)
	for path, to := range map[string]string{
		"/?token=open+sesame": "./", "/?open=mail&token=open+sesame": "./?open=mail", "/jobs?token=open+sesame&state=retry": "./jobs?state=retry",
		"//evil.example?token=open+sesame": "./evil.example",
	} {
		r := request("GET", "http://headgate.example:9090"+path, nil)
		r.RemoteAddr = "192.0.2.7:1"
		got := ask(p, r)
		if got.StatusCode != 303 || got.Header.Get("Location") != to || len(got.Cookies()) != 1 {
			t.Fatalf("%s: %d to %q with %d cookies, want 303 to %q with one", path, got.StatusCode, got.Header.Get("Location"), len(got.Cookies()), to)
		}
	}
	r := from("192.0.2.7:1", nil)
	r.URL.RawQuery = "token=open+sesam"
	if got := ask(p, r); got.StatusCode != 401 || len(got.Cookies()) > 0 {
		t.Errorf("a wrong token: %d with %d cookies", got.StatusCode, len(got.Cookies()))
	}
	r.URL.RawQuery = "token=open+sesame"
	if got := ask(p.Guard(http.NotFoundHandler()), r); got.StatusCode != 401 {
		t.Errorf("beside the page an address with the token: %d, want 401", got.StatusCode)
	}

	cookie := ask(p, r).Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Secure || cookie.MaxAge != 12*60*60 || strings.Contains(cookie.Value, "sesame") {
		t.Errorf("the cookie is %v", cookie)
	}
	with := func(p *page.Page, value string) int {
		return ask(p, from("192.0.2.7:1", func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookie.Name, Value: value}) })).StatusCode
	}
	for value, want := range map[string]int{cookie.Value: 404, cookie.Value + "0": 401, cookie.Value[1:]: 401, "": 401, sesame: 401} {
		if code := with(p, value); code != want {
			t.Errorf("cookie %q: %d, want %d", value, code, want)
		}
	}
	for name, change := range map[string]func(*page.Options){
		"another token": func(o *page.Options) { o.Token += "!" },
		"another scope": func(o *page.Options) { o.Limiter = throttle.New(offline(), throttle.Options{Scope: "other"}) },
	} {
		if code := with(locked(t, offline(), change), cookie.Value); code != 401 {
			t.Errorf("%s: the cookie of before gets %d, want 401", name, code)
		}
	}
	https := locked(t, offline(), func(o *page.Options) { o.HTTPS = true })
	if !ask(https, r).Cookies()[0].Secure {
		t.Error("where browsers come by https, the cookie is not Secure")
	}
}

func TestNew_ShortToken(t *testing.T) {
	rdb := offline()
	o := page.Options{Limiter: throttle.New(rdb, throttle.Options{}), Token: "äöüäöüß"}
	if _, err := page.New(o); err == nil || err.Error() != "page: Token: want at least 8 characters" {
		t.Error(err)
	}
}
