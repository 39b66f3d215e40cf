package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// pieces is a command's output, a piece each tenth of a second.
type pieces struct {
	left []string
	at   time.Duration
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.left[0])
	p.left = p.left[1:]
	p.at += 100 * time.Millisecond
	return n, nil
}

func TestWatch(t *testing.T) {
	output := &pieces{left: []string{"10 %", "\r20 %", "\r20 %", "\r    \rdone\r\n", "all well\r\n"}}
	got, err := watch(output, func() time.Duration { return output.at })
	if err != nil {
		t.Fatal(err)
	}
	want := []frame{
		{100 * time.Millisecond, []string{"10 %"}},
		{200 * time.Millisecond, []string{"20 %"}},
		{400 * time.Millisecond, []string{"done"}},
		{500 * time.Millisecond, []string{"done", "all well"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(frame{})); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

func TestFramesOfABlinkAreNotKept(t *testing.T) {
	var frames []frame
	for _, f := range []frame{{0, []string{"10 %"}}, {100 * time.Millisecond, nil}, {101 * time.Millisecond, []string{"10 %"}}, {300 * time.Millisecond, []string{"20 %"}}} {
		frames = add(frames, f)
	}
	want := []frame{{0, []string{"10 %"}}, {300 * time.Millisecond, []string{"20 %"}}}
	if diff := cmp.Diff(want, frames, cmp.AllowUnexported(frame{})); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

func TestPicture(t *testing.T) {
	got := picture(typed("$ worker demo", []frame{{0, []string{"<10 %>"}}, {time.Second, []string{"<10 %>", "  done & well"}}}))
	var tree struct{}
	if err := xml.Unmarshal([]byte(got), &tree); err != nil {
		t.Fatalf("%v:\n%s", err, got)
	}
	for text, times := range map[string]int{
		"$ worker demo":                       1, // a line is drawn once
		"&lt;10 %&gt;":                        1,
		"done &amp; well":                     1,
		"<use ":                               6,
		"<script":                             0,
		"animation:play 8.20s":                1, // 1.2 s to read the command, 1 s of it, and 6 s for the last frame
		"14.634%{":                            1,
		".film{transform:translateY(-504px)}": 1,
	} {
		if n := strings.Count(got, text); n != times {
			t.Errorf("%q is there %d times, want %d:\n%s", text, n, times, got)
		}
	}
}
