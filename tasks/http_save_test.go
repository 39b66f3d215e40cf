package tasks

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
)

// saving is a local handler with a folder for bodies.
func saving(t *testing.T) *HTTPHandler {
	t.Helper()
	h := local()
	h.SaveDir = t.TempDir()
	return h
}

// saved lists the files below the handler's folder, with their contents.
func saved(t *testing.T, h *HTTPHandler) map[string]string {
	t.Helper()
	found, root := map[string]string{}, os.DirFS(h.SaveDir)
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			text, _ := fs.ReadFile(root, path)
			found[path] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

func TestSave(t *testing.T) {
	const text = "a page of text"
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	tests := []struct {
		name, save string
		want       string
	}{
		{"a file", "home.html", "home.html"},
		{"a file in a new folder", "a/b/home.html", "a/b/home.html"},
		{"a new folder", "pages/", "pages/" + hash(text)},
		{"a folder that is there", "there", "there/" + hash(text)},
		{"a file that is there", "old", "old"},
		{"the folder itself", "./", hash(text)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := saving(t)
			err := os.Mkdir(filepath.Join(h.SaveDir, "there"), 0o700)
			if tt.save == "old" {
				err = os.WriteFile(filepath.Join(h.SaveDir, "old"), []byte("an old text that is longer"), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.fetch(t, HTTPRequest{URL: url, Save: tt.save})
			if err != nil {
				t.Fatal(err)
			}
			want := &HTTPResult{Status: 200, Length: int64(len(text)), Saved: tt.want, SHA256: hash(text), DurationMS: got.DurationMS}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{tt.want: text}, saved(t, h)); diff != "" {
				t.Errorf("files: -want +got:\n%s", diff)
			}
		})
	}
}

func TestSave_Failure_LeavesNoFile(t *testing.T) {
	serveBody := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/wrong":
			w.WriteHeader(http.StatusNotFound)
		case "/broken":
			w.Header().Set("Content-Length", "1000000")
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}
		_, _ = w.Write(make([]byte, 100_000))
	}
	url := serve(t, serveBody)
	tests := []struct {
		name, path string
		call       HTTPRequest
		change     func(*HTTPHandler)
		want       string
		archived   bool
		class      string
		length     int64
	}{
		{name: "another status", path: "/wrong", want: "answered 404", archived: true, class: Class4xx, length: 100_000},
		{name: "wrong length", path: "/broken", want: "broke off: unexpected EOF", class: ClassNetwork, length: -1},
		{name: "endless body", path: "/endless", change: func(h *HTTPHandler) { h.MaxSave = 200_000 }, want: "more than 200000 bytes", archived: true, length: -1},
		{name: "longer than asked for", path: "/", call: HTTPRequest{MaxBody: 99_999}, want: "more than 99999 bytes", archived: true, length: -1},
		{name: "no folder", path: "/", change: func(h *HTTPHandler) { h.SaveDir = "" }, want: "no folder to save to", length: -1},
		{name: "a folder that is gone", path: "/", change: func(h *HTTPHandler) { h.SaveDir += "/gone" }, want: "no such file or directory", length: -1},
		{name: "a link out of the folder", path: "/", call: HTTPRequest{Save: "out/page"}, change: func(h *HTTPHandler) {
			if err := os.Symlink(os.TempDir(), filepath.Join(h.SaveDir, "out")); err != nil {
				panic(err)
			}
		}, want: "path escapes from parent", length: -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := saving(t)
			dir := h.SaveDir
			if tt.change != nil {
				tt.change(h)
			}
			call := tt.call
			call.URL = url + tt.path
			if call.Save == "" {
				call.Save = "page"
			}
			got, err := h.fetch(t, call)
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, asynq.SkipRetry) != tt.archived || Class(err) != tt.class {
				t.Errorf("got %v, want %q, archived %t, class %q", err, tt.want, tt.archived, tt.class)
			}
			if got.Saved != "" || got.SHA256 != "" || got.Length != tt.length {
				t.Errorf("result %+v, want nothing saved, and length %d", got, tt.length)
			}
			h.SaveDir = dir
			if left := saved(t, h); len(left) > 0 {
				t.Errorf("the folder holds %q, want nothing", slices.Collect(maps.Keys(left)))
			}
		})
	}
}
