package page_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// request returns a request of a browser on this machine.
func request(method, target string, form url.Values) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(form.Encode()))
	r.RemoteAddr, r.Host = "127.0.0.1:4711", "localhost:8080"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

// ask returns the answer to a request.
func ask(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNoToken_OnlyLocal(t *testing.T) {
	p := miniFixture(t).page()
	for _, tt := range []struct {
		name   string
		change func(*http.Request)
		want   int
	}{
		{"this machine", func(*http.Request) {}, 200},
		{"its address", func(r *http.Request) { r.Host = "[::1]:80" }, 200},
		{"a name below localhost", func(r *http.Request) { r.Host = "hg.localhost" }, 200},
		{"another machine", func(r *http.Request) { r.RemoteAddr = "192.0.2.7:1" }, 403},
		{"a name that was made to lead here", func(r *http.Request) { r.Host = "evil.example" }, 403},
		{"a name that looks like this one", func(r *http.Request) { r.Host = "localhost.evil.example" }, 403},
		{"no name", func(r *http.Request) { r.Host = "" }, 403},
		{"through a proxy", func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.7") }, 403},
	} {
		r := request("GET", "/", nil)
		tt.change(r)
		if got := ask(p, r).StatusCode; got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestAuthenticate(t *testing.T) {
	w := miniFixture(t)
	w.options.Authenticate = func(r *http.Request) (string, bool) { return "ada", r.Header.Get("Who") == "ada" }
	p := w.page()
	r := request("POST", "/do", url.Values{"action": {"pause"}, "limit": {"mail"}})
	r.RemoteAddr, r.Host = "192.0.2.7:1", "headgate.example"
	if got := ask(p, r).StatusCode; got != 401 {
		t.Errorf("a stranger: %d, want 401", got)
	}
	r = request("POST", "/do", url.Values{"action": {"pause"}, "limit": {"mail"}})
	r.Header.Set("Who", "ada")
	if got := ask(p, r).StatusCode; got != 303 {
		t.Errorf("a user: %d, want 303", got)
	}
	changes, err := w.limiter.Changes(t.Context(), 1)
	w.must(err)
	if changes[0].What != "paused" || changes[0].By != "ada" {
		t.Errorf("the changelog has %+v, want that ada paused it", changes[0])
	}
}

// TestProgramFunctions_Misbehave: if a function of the program panics, ends its goroutine or hangs,
// the request fails or the page shows less, and the next request is answered.
func TestProgramFunctions_Misbehave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for how, misbehave := range map[string]func(){
			"panics":             func() { panic("a fault") },
			"ends its goroutine": runtime.Goexit,
			"hangs":              func() { time.Sleep(time.Hour) },
		} {
			faulty := ""
			fault := func(function string) {
				if function == faulty {
					misbehave()
				}
			}
			w := miniFixture(t)
			w.options.Authenticate = func(*http.Request) (string, bool) { fault("Authenticate"); return "ada", true }
			w.options.KeyOf = func(string) (string, bool) { fault("KeyOf"); return "", true }
			w.options.NormalizeKey = func(_, key string) (string, error) { fault("NormalizeKey"); return key, nil }
			p := w.page()
			block := func() int {
				return ask(p, request("POST", "/do", url.Values{"action": {"block"}, "limit": {"host"}, "key": {"a.example"}, "until": {"1h"}})).StatusCode
			}
			view := func() int { return ask(p, request("GET", "/", nil)).StatusCode }
			for _, place := range []struct {
				function string
				ask      func() int
				failed   int
			}{{"Authenticate", view, 401}, {"KeyOf", view, 200}, {"NormalizeKey", block, 422}} {
				if faulty = place.function; place.ask() != place.failed {
					t.Errorf("%s %s: want status %d", place.function, how, place.failed)
				}
				if faulty = ""; view() != 200 {
					t.Errorf("after %s %s: the page is not shown", place.function, how)
				}
			}
			time.Sleep(2 * time.Hour) // what hangs ends before the bubble
		}
	})
}

// TestAction_Forged: POSTs of other sites, and those to an address alone, as of a webhook, change
// nothing.
func TestAction_Forged(t *testing.T) {
	w := miniFixture(t)
	p := w.page()
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r := request("POST", "/do", url.Values{"action": {"pause"}, "limit": {"mail"}})
		r.Header.Set(header, value)
		if got := ask(p, r).StatusCode; got != 403 {
			t.Errorf("%s %s: %d, want 403", header, value, got)
		}
	}
	for _, kind := range []string{"application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
		r := request("POST", "/do?action=pause&limit=mail", url.Values{"event": {"x"}})
		r.Header.Set("Content-Type", kind)
		if got := ask(p, r).StatusCode; got != 404 {
			t.Errorf("%s: %d, want 404", kind, got)
		}
	}
	limits, err := w.limiter.Limits(t.Context())
	w.must(err)
	if i := slices.IndexFunc(limits, func(l throttle.Limit) bool { return l.Paused }); i >= 0 {
		t.Errorf("%s was paused", limits[i].Name)
	}
}

// TestAction_ForeignLink: a link to an action shows what it is done to, and can neither confirm it nor
// fill it in.
func TestAction_ForeignLink(t *testing.T) {
	p := miniFixture(t).page()
	for link, title := range map[string]string{
		"action=pause&limit=mail&key=k":                 "Pause mail",
		"action=pause&limit=mail&schedule=nightly":      "Pause mail",
		"action=block&limit=mail&key=k&id=1&schedule=s": "Block mail of k",
		"action=pause&action=reset&limit=mail&key=k":    "Pause mail",
		"action=pause&limit=mail&limit=other":           "Pause mail",
		"action=change&limit=mail&rate=1/s&capacity=9":  "Change mail",
	} {
		text := body(t, ask(p, request("GET", "/do?"+link, nil)))
		if !strings.Contains(text, `<h2 id="dialog-title">`+title+"</h2>") {
			t.Errorf("%s asks for something else than %q:\n%s", link, title, text)
		}
		_, to, _ := strings.Cut(text, `<form method="post" action="`)
		to, _, _ = strings.Cut(to, `"`)
		if strings.Contains(to, "rate") || strings.Contains(to, "capacity") {
			t.Errorf("%s: the form goes to %s", link, to)
		}
	}
}

// TestAction_OddNames: names of any bytes reach the address of the form unchanged.
func TestAction_OddNames(t *testing.T) {
	p := miniFixture(t).page()
	for _, key := range []string{"a\r\nb\nc", "\x00\x1b", `"><a href='x'>&amp;%2f+%`, "\u2028\u202e", strings.Repeat("é", 5000)} {
		link := url.Values{"action": {"block"}, "limit": {"mail"}, "key": {key}}
		text := body(t, ask(p, request("GET", "/do?"+link.Encode(), nil)))
		_, to, _ := strings.Cut(text, `<form method="post" action="./do?`)
		to, _, _ = strings.Cut(to, `"`)
		if named, err := url.ParseQuery(html.UnescapeString(to)); err != nil || named.Get("key") != key {
			t.Errorf("%.20q: %v: the form goes to %.200s", key, err, to)
		}
	}
}

func TestReadOnly(t *testing.T) {
	w := miniFixture(t)
	w.options.ReadOnly = true
	p := w.page()
	for name := range page.Actions() {
		if got := ask(p, request("POST", "/do", url.Values{"action": {name}, "limit": {"mail"}})).StatusCode; got != 403 {
			t.Errorf("%s: %d, want 403", name, got)
		}
	}
	for _, path := range []string{"/", "/?open=mail", "/waiting", "/jobs", "/jobs?state=archived", "/changes"} {
		if text := body(t, ask(p, request("GET", path, nil))); strings.Contains(text, "do?action") {
			t.Errorf("%s has a link to an action", path)
		}
	}
}

// TestPaths: every page is there at any mount point, no other is, and all have the security headers.
func TestPaths(t *testing.T) {
	p := miniFixture(t).page()
	mounted := http.NewServeMux()
	mounted.Handle("/a/b/", http.StripPrefix("/a/b", p))
	for path, want := range map[string]int{
		"/a/b/": 200, "/a/b/jobs": 200, "/a/b/assets/page.css": 200, "/a/b/assets/idiomorph.LICENSE": 200,
		"/a/b/assets/../page.go": 307, "/a/b/assets/..%2f..%2fpage.go": 404, "/a/b/assets/%2e%2e/doc.go": 404, "/a/b/assets/": 404, "/a/b/assets": 404,
		"/a/b/templates/page.html": 404, "/a/b/jobs/": 404, "/a/b/%00": 404, "/a/b/..%5c..%5cetc%5cpasswd": 404, "/a/b/jobs%2f": 404, "/a/b/queues": 404, "/a/b/schedules": 404, "/a/b/workers": 404,
		"/a/b/?open=" + strings.Repeat("x", 5000): 414, "/a/b/events": 404,
	} {
		got := ask(mounted, request("GET", path, nil))
		if got.StatusCode != want {
			t.Errorf("%.80s: %d, want %d", path, got.StatusCode, want)
		}
		if policy := got.Header.Get("Content-Security-Policy"); want != 307 && !strings.HasPrefix(policy, "default-src 'self';") {
			t.Errorf("%.80s: the policy is %q", path, policy)
		}
		if text := body(t, got); strings.Contains(text, "<script>") || strings.Contains(text, " style=") || strings.Contains(text, "onclick") {
			t.Errorf("%s has a script or a style within it", path)
		}
	}
	for _, back := range []string{"//evil.example", "https://evil.example", "/\\evil.example", "do?action=pause", "javascript:alert(1)"} {
		got := ask(p, request("POST", "/do", url.Values{"action": {"pause"}, "limit": {"mail"}, "back": {back}}))
		if to := got.Header.Get("Location"); to != "./" {
			t.Errorf("back %q leads to %q", back, to)
		}
	}
	for _, method := range []string{"PUT", "DELETE", "POST"} {
		if got := ask(p, request(method, "/jobs", nil)).StatusCode; got != 405 {
			t.Errorf("%s: %d, want 405", method, got)
		}
	}
}

// TestForeignText: IDs, keys, payloads and errors of any content are shown, and run nothing.
func TestForeignText(t *testing.T) {
	w := realFixture(t)
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>`
	bytes := "a\xff\xfe\x1b[31m\x07b\u202ec\u2028"
	big := strings.Repeat("x", 1<<20)
	client := w.client
	for i, payload := range []string{
		evil, bytes, big, `{"a":"` + evil + `","password":"sesame","n":1234567890123456789}`, `{"h":{"Cookie":["sesame"]},"list":[["Authorization","sesame"],{"name":"X-Token","value":"sesame"}]}`,
		"Authorization: Basic sesame\nhttps://me:sesame@host.example/?token=sesame&x=1",
	} {
		_, err := client.Enqueue(asynq.NewTask(evil, []byte(payload), asynq.TaskID(fmt.Sprint(evil, i))), asynq.Queue(evil[:8]))
		w.must(err)
	}
	w.wait(evil, throttle.Need{Limit: "mail", Key: evil, Cost: 10})
	w.wait(evil+bytes, throttle.Need{Limit: "mail", Key: evil, Cost: 10})
	w.must(w.limiter.Block(throttle.WithActor(t.Context(), evil+bytes), "mail", strings.Repeat("k", 199), time.Now().Add(time.Hour)))
	me := throttle.WithActor(t.Context(), evil+bytes)
	w.must(w.limiter.SetKey(me, "mail", evil, throttle.Override{Rate: throttle.PerSecond(1)}))
	w.must(w.limiter.Internals().Note(me, throttle.Change{What: "retried", Jobs: 1, Job: throttle.JobID{Queue: evil, ID: bytes + big}}))
	w.must(w.limiter.Internals().Note(me, throttle.Change{What: "deleted", Jobs: 2, Job: throttle.JobID{Queue: evil + bytes}}))
	w.must(w.limiter.Internals().Note(me, throttle.Change{What: "paused", Schedule: evil + bytes}))
	p := w.page()
	paths := []string{
		"/", "/?open=mail", "/waiting", "/jobs", "/jobs?state=pending&payload=" + url.QueryEscape(evil), "/jobs?older=" + url.QueryEscape(evil), "/jobs?state=" + url.QueryEscape(evil+bytes), "/changes", "/find?q=script", "/find?q=" + url.QueryEscape(evil), "/find?q=%ff%1b",
		"/?open=mail&q=" + url.QueryEscape(evil), "/do?action=block&limit=mail&key=" + url.QueryEscape(evil), "/do?action=reset&limit=mail&key=" + url.QueryEscape(bytes),
	}
	for i := range 6 {
		paths = append(paths, "/job?queue="+url.QueryEscape(evil[:8])+"&id="+url.QueryEscape(fmt.Sprint(evil, i)))
	}
	for _, path := range paths {
		got := ask(p, request("GET", path, nil))
		text := body(t, got)
		if got.StatusCode != 200 && got.StatusCode != 303 && got.StatusCode != 404 {
			t.Errorf("%.60s: %d\n%.500s", path, got.StatusCode, text)
		}
		for _, bad := range []string{"<script>alert", "<img", "\x1b", "\x07", "\xff", "\u202e", "\u2028", "sesame"} {
			if strings.Contains(text, bad) {
				t.Errorf("%.60s shows %q", path, bad)
			}
		}
		if len(text) > 300_000 {
			t.Errorf("%.60s has %d bytes", path, len(text))
		}
	}
	if text := body(t, ask(p, request("GET", paths[len(paths)-3], nil))); !strings.Contains(text, "1234567890123456789") {
		t.Error("a large number of a payload is shown in another form")
	}
}

// TestViewers: two hundred browsers that ask every two seconds cost one read a second, and none
// afterwards.
func TestViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := miniFixture(t)
		var times atomic.Int64 // each snapshot reads Redis's time a few times
		w.rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "time" {
				times.Add(1)
			}
			return next(ctx, cmd)
		}))
		p := w.page()
		var viewers sync.WaitGroup
		for i := range 200 {
			viewers.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				for range 10 {
					if got := ask(p, request("GET", "/", nil)); got.StatusCode != 200 {
						t.Errorf("a viewer gets %d", got.StatusCode)
					}
					time.Sleep(2 * time.Second)
				}
			})
		}
		viewers.Wait()
		n := times.Load()
		if n > 23*3 { // one snapshot a second
			t.Errorf("Redis was asked for the time %d times in 22 s", n)
		}
		time.Sleep(time.Minute)
		if more := times.Load() - n; more > 0 {
			t.Errorf("Redis was asked for the time %d times, while no browser looked", more)
		}
	})
}

// TestNormalizeKey: a typed key is normalized, but not the key of a link, which is in Redis.
func TestNormalizeKey(t *testing.T) {
	w := miniFixture(t)
	w.options.NormalizeKey = func(_, key string) (string, error) { return strings.ToLower(key), nil }
	p := w.page()
	for address, want := range map[string]string{"/do": "a.example", "/do?key=A.example": "A.example"} {
		got := ask(p, request("POST", address, url.Values{"action": {"block"}, "limit": {"host"}, "key": {"A.example"}, "for": {"1h"}}))
		if got.StatusCode != 303 {
			t.Fatalf("%s: %d", address, got.StatusCode)
		}
		changes, err := w.limiter.Changes(t.Context(), 1)
		w.must(err)
		if changes[0].Key != want {
			t.Errorf("%s blocked key %q, want %q", address, changes[0].Key, want)
		}
	}
}
