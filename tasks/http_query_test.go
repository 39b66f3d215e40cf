package tasks

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A key that is written out in the URL is sent, and stands in no result and no error.
func TestSecrets_InQuery_AreNotShown(t *testing.T) {
	const key = "wr1tten/0ut"
	var got string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.URL.Query().Get("api_key")
		switch r.URL.Path {
		case "/no":
			w.WriteHeader(http.StatusTeapot)
		case "/moved":
			w.Header().Set("Location", "/there?"+r.URL.RawQuery)
			w.WriteHeader(http.StatusFound)
		case "/broken":
			w.Header().Set("Content-Length", "1000")
		}
		_, _ = io.WriteString(w, "you sent "+got)
	})
	h := local()
	query := "?q=1&api_key=wr1tten%2F0ut&token=s3cr&sig="
	check := func(what string, shown []byte) {
		t.Helper()
		for _, secret := range []string{key, "wr1tten%2F0ut", "s3cr"} {
			if strings.Contains(string(shown), secret) {
				t.Errorf("%s: %s shows %q", what, shown, secret)
			}
		}
	}
	for _, path := range []string{"/yes", "/no", "/moved", "/broken"} {
		result, err := h.fetch(t, HTTPRequest{URL: url + path + query})
		if got != key {
			t.Fatalf("%s: the server got %q, want the key", path, got)
		}
		shown, _ := marshal(result)
		if err != nil {
			shown = append(shown, presentable(err).Error()...)
		}
		check(path, shown)
		if want := "you sent •••"; result.Body != want {
			t.Errorf("%s: body %q, want %q", path, result.Body, want)
		}
	}
	for _, bad := range []string{"http://127.0.0.1:1/", "http://10.0.0.1/"} {
		if err := processBy(t, h, HTTPRequest{URL: bad + query}); err == nil {
			t.Errorf("%s: want an error", bad)
		} else {
			check(bad, []byte(err.Error()))
		}
	}
	for _, bad := range []string{"ftp://h/", "http://u:p@h/", "http:///", "http://h:99999/"} {
		if err := (HTTPRequest{URL: bad + query}).Validate(); err == nil {
			t.Errorf("%s: want an error", bad)
		} else {
			check(bad, []byte(err.Error()))
		}
	}

	// The next call has the key.
	err := processBy(t, h, HTTPRequest{URL: url + "/moved" + query, Redirects: RedirectsRequeue})
	moved, ok := errors.AsType[*RedirectError](err)
	if !ok || moved.Next.URL != url+"/there"+query {
		t.Fatalf("got %v and %+v, want it to go on at /there", err, moved)
	}
	check("a redirect", []byte(err.Error()))
}
