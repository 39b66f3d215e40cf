package results

import (
	"testing"

	"github.com/headgate/headgate/tasks"
)

// A body's file has the extension of its type, and no extension if the type is unknown.
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
