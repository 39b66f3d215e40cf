package tasks

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

// No payload makes a decoder panic, and what is valid is written as the same again.
func FuzzPayloads(target *testing.F) {
	f := fuzzseed.More(target)
	for _, seed := range []string{
		`{"url":"https://example.com/","method":"POST","headers":{"A":"${env:TOKEN}"},"body":"x"}`,
		`{"crawl":"docs","url":"https://example.com/","depth":3,"allow":["same-host","*.example.org"],"sitemap":true,"nested":1,"hops":2}`,
		`{"url":"https://h/?a=<&>é","timeout":"1m30s","expect":[200],"redirects":true,"hops":1,"keep_headers":["ETag"],"save":"a/","max_body":9}`,
		`{"url":"https://example.com/","expect":{"status":[200]}}`, `{"url":1}`, `{"url":"a","url":"b"}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		_ = Validate(PrefixExec+"it", payload)
		writeAgain[HTTPRequest](t, payload)
		if page, ok := writeAgain[CrawlFetch](t, payload); ok && page.ID() == "" {
			t.Errorf("%q has no ID", payload)
		}
	})
}

// writeAgain parses a payload, writes it, and fails if the text means something else.
func writeAgain[P interface{ Validate() error }](t *testing.T, payload []byte) (P, bool) {
	t.Helper()
	of, err := parse[P](payload)
	if err != nil {
		return of, false
	}
	text, err := marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	again, err := parse[P](text)
	if diff := cmp.Diff(of, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Fatalf("%q is %q, and that: %v %s", payload, text, err, diff)
	}
	return of, true
}

// A secret is in no text that is kept or said, wherever it stands and wherever that is cut.
func FuzzHide(target *testing.F) {
	f := fuzzseed.More(target)
	f.Add("before ", " after", uint16(10))
	f.Add("hunter2", "hunter2", uint16(0))
	f.Fuzz(func(t *testing.T, before, after string, most uint16) {
		const value = "hunter2hunter2"
		s := secrets{{value + "/longer", "${env:LONGER}"}, {value, "${env:TOKEN}"}}
		text := before + value + after
		for name, got := range map[string]string{
			"hide": s.hide(text), "hideStart": string(s.hideStart([]byte(text[:min(len(text), int(most)+s.longest()+1)]), int(most))),
			"hideEnd": s.hideEnd([]byte(text[max(0, len(text)-int(most)-s.longest()):]), int(most)),
		} {
			if strings.Contains(got, value) {
				t.Errorf("%s of %q, cut at %d, is %q", name, text, most, got)
			}
		}
	})
}
