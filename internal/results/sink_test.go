package results

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/tasks"
)

// What is exported stays, where the file system knows no hard links, too.
func TestExportsWithoutHardLinks(t *testing.T) {
	noLinks := func(string, string) error { return &os.LinkError{Op: "link", Err: errors.ErrUnsupported} }
	export := func(meanwhile func(name string)) (folder, name string, err error) {
		t.Helper()
		folder = t.TempDir()
		name = filepath.Join(folder, "results.jsonl")
		f, err := newLinesFile(name, false, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		f.link = noLinks
		if err := f.Put(Result{ID: "one"}); err != nil {
			t.Fatal(err)
		}
		meanwhile(name)
		return folder, name, f.Close(true)
	}
	files := func(folder string) (texts []string) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		return texts
	}

	folder, name, err := export(func(string) {})
	if got := files(folder); err != nil || len(got) != 1 || !strings.Contains(got[0], `"one"`) {
		t.Errorf("%v, and there is %q: want the results in %s alone", err, got, name)
	}

	folder, name, err = export(func(name string) {
		if err := os.WriteFile(name, []byte("another's"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	got := files(folder)
	if err == nil || !strings.Contains(err.Error(), "all results are in "+folder) || len(got) != 2 || got[1] != "another's" || !strings.Contains(got[0], `"one"`) {
		t.Errorf("%v, and there is %q: want another's %s as it was, and the results beside it", err, got, name)
	}
}

// A body's file has the extension of its type, and none where nobody knows that.
func TestExtensions(t *testing.T) {
	typed := func(kind string) *tasks.HTTPResult {
		return &tasks.HTTPResult{Headers: map[string][]string{"Content-Type": {kind}}}
	}
	for _, tt := range []struct {
		answer Answer
		want   string
	}{
		{Answer{typed("text/html; charset=utf-8"), []byte("x")}, ".html"},
		{Answer{typed("application/json"), []byte("{")}, ".json"},
		{Answer{typed("application/octet-stream"), []byte("<html>")}, ""},
		{Answer{typed("no type at all;;"), []byte(`{"a":1}`)}, ".json"},
		{Answer{&tasks.HTTPResult{}, []byte("<!doctype html><p>")}, ".html"},
		{Answer{&tasks.HTTPResult{}, []byte("%PDF-1.7")}, ".pdf"},
		{Answer{nil, []byte("some words")}, ".txt"},
		{Answer{nil, []byte{0, 1, 2, 3}}, ""},
	} {
		if got := tt.answer.extension(); got != tt.want {
			t.Errorf("%q has %q, want %q", tt.answer.body, got, tt.want)
		}
	}
}
