package page_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/crypto/scrypt"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

const sesame = "open sesame"

// locked is a page behind a token, with what it logs.
func locked(t *testing.T, rdb redis.UniversalClient, change func(*page.Options)) (p *page.Page, log *bytes.Buffer) {
	log = &bytes.Buffer{}
	o := page.Options{
		Redis: rdb, Limiter: lanes.New(throttle.New(rdb, throttle.RedisOptions{})), Token: sesame,
		Log: slog.New(slog.NewTextHandler(log, nil)),
	}
	if change != nil {
		change(&o)
	}
	p, err := page.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p, log
}

// from is a request for what is not there, which is said only to those who may come in.
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

func cookie(value string) func(*http.Request) {
	return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "headgate-9090", Value: value}) }
}

func form(token string) func(*http.Request) {
	return func(r *http.Request) {
		typed := request("POST", "/sign-in", url.Values{"token": {token}})
		r.Method, r.URL, r.RequestURI, r.Body, r.Header, r.ContentLength = typed.Method, typed.URL, typed.RequestURI, typed.Body, typed.Header, typed.ContentLength
	}
}

// forge signs a session as one who knows the token, or guesses it.
func forge(t *testing.T, token string) string {
	key, err := scrypt.Key([]byte(token+"\x00\x00"), []byte("headgate page\x00default"), 1<<15, 8, 1, 32)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%d.1.%s", time.Now().Add(time.Hour).Unix(), base64.RawURLEncoding.EncodeToString([]byte("token")))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// TestGuesses: whatever is guessed, in a header, a cookie or the form, eight a second of
// an address are looked at and no more: the right one among those beyond opens nothing.
// Who has signed in before, or comes from elsewhere, is not kept out.
func TestGuesses(t *testing.T) {
	for name, guess := range map[string]func(token string) func(*http.Request){
		"header": bearer,
		"cookie": func(token string) func(*http.Request) {
			if token == sesame {
				return cookie(forge(t, token))
			}
			return cookie("9999999999.1.dG9rZW4." + token)
		},
		"form": form,
	} {
		t.Run(name, func(t *testing.T) {
			right, rdb := guess(sesame), offline()
			synctest.Test(t, func(t *testing.T) {
				p, log := locked(t, rdb, nil)
				session := ask(p, from("192.0.2.1:1", form(sesame))).Cookies()[0].Value
				codes := make(chan int, 1000)
				start := time.Now()
				for i := range 1000 {
					go func() {
						codes <- ask(p, from(fmt.Sprint("[2001:db8::", i%7, "]:", 1+i), guess(fmt.Sprint("wrong", i)))).StatusCode
					}()
				}
				time.Sleep(wrongDelay / 2)
				synctest.Wait()
				if n := len(codes); n != 992 {
					t.Errorf("%d of 1000 guesses of one network were not looked at, want 992", n)
				}
				if code := ask(p, from("[2001:db8::8]:1", right)).StatusCode; code != 429 {
					t.Errorf("the right one was answered with %d beside guesses that wait: whoever floods could tell it", code)
				}
				if code := ask(p, from("[2001:db8::8]:1", cookie(session))).StatusCode; code != 404 {
					t.Errorf("one who has signed in gets %d while others guess, want 404", code)
				}
				if code := ask(p, from("192.0.2.7:1", right)).StatusCode; code >= 400 && code != 404 {
					t.Errorf("one from elsewhere gets %d", code)
				}
				seen := map[int]int{}
				for range 1000 {
					seen[<-codes]++
				}
				if took := time.Since(start); seen[401] != 8 || took != wrongDelay {
					t.Errorf("%v after %s, want 8 with 401 after a second", seen, took)
				}
				synctest.Wait()
				if code := ask(p, from("[2001:db8::8]:1", right)).StatusCode; code >= 400 && code != 404 {
					t.Errorf("the right one gets %d when the guesses have had their answers", code)
				}

				time.Sleep(time.Minute)
				synctest.Wait()
				if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, `wrong=8 "not looked at"=993 "last from"=[2001:db8::`) {
					t.Errorf("of a minute's guesses it logs %q", said)
				}
			})
		})
	}
}

// wrongDelay is what a wrong guess costs.
const wrongDelay = time.Second

// TestGuessesOfAll: many addresses together have few guesses, too.
func TestGuessesOfAll(t *testing.T) {
	rdb := offline()
	synctest.Test(t, func(t *testing.T) {
		p, _ := locked(t, rdb, nil)
		codes := make(chan int, 1000)
		for i := range 1000 {
			go func() {
				codes <- ask(p, from(fmt.Sprint("192.0.", i/250, ".", i%250, ":1"), bearer("wrong"))).StatusCode
			}()
		}
		seen := map[int]int{}
		for range 1000 {
			seen[<-codes]++
		}
		if seen[401] != 64 || seen[429] != 936 {
			t.Errorf("%v, want 64 that were looked at", seen)
		}
	})
}

// TestForgedSession: a session is signed with the token stretched, so a guess costs
// whoever steals one some 32 MiB and a tenth of a second.
func TestForgedSession(t *testing.T) {
	p, _ := locked(t, offline(), nil)
	if code := ask(p, from("192.0.2.7:1", cookie(forge(t, sesame)))).StatusCode; code != 404 {
		t.Errorf("a session that the token's scrypt signs: %d, want 404", code)
	}
}

// TestEndedSession: to come with a session that has ended is no guess.
func TestEndedSession(t *testing.T) {
	rdb := offline()
	synctest.Test(t, func(t *testing.T) {
		p, log := locked(t, rdb, nil)
		session := ask(p, from("192.0.2.1:1", form(sesame))).Cookies()[0].Value
		again, _ := locked(t, rdb, nil) // a restart
		time.Sleep(12 * time.Hour)
		for name, p := range map[string]*page.Page{"a known one": p, "one from before the restart": again} {
			start := time.Now()
			if code := ask(p, from("192.0.2.1:1", cookie(session))).StatusCode; code != 401 || time.Since(start) != 0 {
				t.Errorf("%s: %d after %s, want 401 at once", name, code, time.Since(start))
			}
		}
		time.Sleep(time.Hour)
		if log.Len() > 0 {
			t.Errorf("it logs %s", log)
		}
	})
}

// TestSecureCookie: where browsers come by https they send the session by nothing else.
func TestSecureCookie(t *testing.T) {
	for https, want := range map[bool]bool{false: false, true: true} {
		p, _ := locked(t, offline(), func(o *page.Options) { o.HTTPS = https })
		if got := ask(p, from("192.0.2.1:1", form(sesame))).Cookies()[0].Secure; got != want {
			t.Errorf("HTTPS %v: Secure is %v", https, got)
		}
	}
}

// TestShortSecrets: what can be guessed is no credential.
func TestShortSecrets(t *testing.T) {
	rdb := offline()
	base := page.Options{Redis: rdb, Limiter: lanes.New(throttle.New(rdb, throttle.RedisOptions{}))}
	token, password := base, base
	token.Token = "äöüäöüß"
	password.User, password.Password = "ops", "1"
	for want, o := range map[string]page.Options{"page: Token: want at least 8 characters": token, "page: Password: want at least 8 characters": password} {
		if _, err := page.New(o); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
