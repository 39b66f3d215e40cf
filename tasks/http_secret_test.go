package tasks

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
)

const apiKey = "k3y with/odd&signs"

// secretive is a handler that knows a secret in the environment and in a file.
func secretive(t *testing.T) (h *HTTPHandler, file string) {
	t.Helper()
	t.Setenv("API_KEY", apiKey)
	file = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("t0ken-of-file\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h = local()
	h.Secrets = []string{"env:API_*", "file:" + filepath.Dir(file) + "/*"}
	return h, file
}

// Secrets are sent, and no result and no error shows them. No error shows a value that is written in
// the URL either.
func TestSecrets_AreSentAndNotShown(t *testing.T) {
	h, file := secretive(t)
	var sent string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sent = strings.Join([]string{r.URL.Query().Get("key"), r.Header.Get("Authorization")}, " ")
		w.Header().Set("X-Echo", sent)
		switch r.URL.Path {
		case "/no":
			w.WriteHeader(http.StatusTeapot)
		case "/moved":
			w.Header().Set("Location", "/there?"+r.URL.RawQuery)
			w.WriteHeader(http.StatusFound)
		case "/broken":
			w.Header().Set("Content-Length", "1000")
		}
		_, _ = io.WriteString(w, sent)
	})
	const query = "?key=${env:API_KEY}&api_key=wr1tten%2F0ut&token=s3cr"
	check := func(what string, shown []byte) {
		t.Helper()
		for _, secret := range []string{apiKey, escapeURL(apiKey), "t0ken-of-file", "wr1tten%2F0ut", "s3cr", "hunter2"} {
			if strings.Contains(string(shown), secret) {
				t.Errorf("%s: %s shows the secret %q", what, shown, secret)
			}
		}
	}
	for _, path := range []string{"/yes", "/no", "/moved", "/broken"} {
		result, err := h.fetch(t, HTTPRequest{
			URL: url + path + query, KeepHeaders: []string{"x-echo"},
			Headers: map[string]string{"Authorization": "Bearer ${file:" + file + "}"},
		})
		if want := apiKey + " Bearer t0ken-of-file"; sent != want {
			t.Fatalf("%s: the server got %q, want %q", path, sent, want)
		}
		shown, _ := marshal(result)
		if err != nil {
			shown = append(shown, presentable(err).Error()...)
		}
		check(path, shown)
		if want := "${env:API_KEY} Bearer ${file:" + file + "}"; result.Body != want || result.Headers.Get("X-Echo") != want {
			t.Errorf("%s: body %q, header %q, want %q", path, result.Body, result.Headers.Get("X-Echo"), want)
		}
	}
	for _, bad := range []string{"http://127.0.0.1:1/", "http://10.0.0.1/"} {
		check(bad, []byte(processBy(t, h, HTTPRequest{URL: bad + query}).Error()))
	}
	for _, bad := range []string{"ftp://h/", "http://u:p@h/", "http:///", "http://h:99999/"} {
		check(bad, []byte((HTTPRequest{URL: bad + query}).Validate().Error()))
	}
	check("a bad header", []byte(HTTPRequest{URL: url, Headers: map[string]string{"X-Api-Key": "hunter2\n"}}.Validate().Error()))
}

// The next payload has the reference. A reference in the Location is escaped.
func TestSecrets_Redirects(t *testing.T) {
	h, _ := secretive(t)
	h.PutBackAs = putBackAs
	t.Setenv("API_OTHER", "not for you!")
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/there?"+r.URL.RawQuery+"&more=${env:API_OTHER}")
		w.WriteHeader(http.StatusFound)
	})
	_, err := h.fetch(t, HTTPRequest{URL: url + "/?key=${env:API_KEY}&api_key=written", Redirects: true})
	moved, ok := errors.AsType[*movedError](err)
	if !ok {
		t.Fatalf("got %v, want the job put back", err)
	}
	if want := url + "/there?key=${env:API_KEY}&api_key=written&more=%24%7Benv:API_OTHER}"; moved.next.URL != want {
		t.Errorf("next %s\nwant %s", moved.next.URL, want)
	}
}

func TestSecrets_Refused(t *testing.T) {
	h, file := secretive(t)
	dir := filepath.Dir(file)
	t.Setenv("API_SHORT", "short")
	t.Setenv("API_LINES", "two lines\r\nX-Evil: 1")
	t.Setenv("PRIVATE", "a private value")
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was called") })
	tests := []struct{ name, want string }{
		{"env:PRIVATE", "is not in http.secrets of the worker's config"},
		{"file:/etc/passwd", "is not in http.secrets of the worker's config"},
		{"file:" + dir + "/../token", "is not in http.secrets of the worker's config"},
		{"file:" + dir + "/..", "absolute path of a file"},
		{"file:" + dir + "/none", "no such file"},
		{"env:API_NONE", "is not set"},
		{"env:API_SHORT", "want at least 8"},
		{"env:API_LINES", "want one line"},
	}
	for _, tt := range tests {
		err := processBy(t, h, HTTPRequest{URL: url, Headers: map[string]string{"X-Key": "${" + tt.name + "}"}})
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, asynq.SkipRetry) {
			t.Errorf("%s: got %v, want %q, to be retried", tt.name, err, tt.want)
		}
	}
	err := process(t, HTTPRequest{URL: url + "/${env:API_KEY}"})
	if err == nil || !strings.Contains(err.Error(), "is not in http.secrets of the worker's config") {
		t.Errorf("a handler without secrets: got %v", err)
	}
}

// Wherever a text is cut, no part of a secret is left: here all capital letters.
func TestSecrets_CutText_HidesParts(t *testing.T) {
	s := secrets{{"LONG SECRET", "${env:l}"}, {"SECRET", "${env:s}"}}
	for _, text := range []string{"a SECRET, and a LONG SECRET of many", "LONG SECRETLONG SECRET", "SECRET", "a text without any, of some length"} {
		for n := range len(text) + 2 {
			start := string(s.hideStart([]byte(text[:min(len(text), n+s.longest()+1)]), n))
			end := s.hideEnd([]byte(text[max(0, len(text)-n-s.longest()):]), n)
			for _, got := range []string{start, end} {
				if got != strings.ToLower(got) || n < len(text) && len(got) > n {
					t.Errorf("%d bytes of %q: %q", n, text, got)
				}
			}
			if !strings.Contains(text, "SECRET") && n >= len(text) && (start != text[:min(n, len(text))] || end != text[max(0, len(text)-n):]) {
				t.Errorf("%d bytes of %q: %q and %q", n, text, start, end)
			}
		}
	}
}
