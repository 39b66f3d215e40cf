package page_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// TestShards: the page shows each limit of a sharded queue once, and its actions change all parts.
func TestShards(t *testing.T) {
	w := miniFixture(t)
	w.options.Shards = []scheduler.Shards{{Queue: "pages", Count: 4, ByKey: []string{"site"}, Divided: []string{"all"}}}
	var parts []*throttle.Limiter
	for _, part := range shard.All("pages", 4) {
		limiter := throttle.New(w.rdb, throttle.Options{Scope: part.Name(), Logger: quiet})
		parts = append(parts, limiter)
		all, err := part.Divide(throttle.Limit{Name: "all", Kind: throttle.SlidingWindow, Rate: throttle.PerDay(10)})
		w.must(err)
		w.must(limiter.Define(t.Context(), all, throttle.Limit{Name: "site", Kind: throttle.Funnel, Rate: throttle.PerSecond(2)}))
		for _, id := range []string{"runs", "waits"} {
			job := waitdb.Job{JobID: throttle.JobID{Queue: part.Name(), ID: id}}
			_, err = waitdb.New(limiter).Acquire(t.Context(), job, throttle.Need{Limit: "all", Cost: all.Rate.N})
			w.must(err)
		}
	}
	p := w.page()
	do := func(want int, pairs ...string) string {
		t.Helper()
		form := url.Values{}
		for pair := range slices.Chunk(pairs, 2) {
			form.Set(pair[0], pair[1])
		}
		got := ask(p, request("POST", "/do", form))
		text := body(t, got)
		if got.StatusCode != want {
			t.Fatalf("%v: %d %.2000s", pairs, got.StatusCode, text)
		}
		return text
	}
	limits := func(name string) (found []throttle.Limit) {
		t.Helper()
		for _, limiter := range parts {
			all, err := limiter.Limits(t.Context())
			w.must(err)
			for _, l := range all {
				if l.Name == name {
					found = append(found, l)
				}
			}
		}
		return found
	}
	paused := func() (n int) {
		for _, l := range limits("all") {
			if l.Paused {
				n++
			}
		}
		return n
	}

	text := body(t, ask(p, request("GET", "/?open=all", nil)))
	for _, want := range []string{`id="limit-all"`, `id="limit-site"`} {
		if strings.Count(text, want) != 1 {
			t.Errorf("the page has %s %d times, want once", want, strings.Count(text, want))
		}
	}
	for _, want := range []string{"sliding_window 10/day", "10 of 10", "10/10", "4 jobs wait"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not have %q: %s", want, text)
		}
	}

	do(303, "action", "pause", "limit", "all")
	if n := paused(); n != 4 {
		t.Errorf("%d of 4 parts are paused", n)
	}
	if text := body(t, ask(p, request("GET", "/changes", nil))); strings.Count(text, "all paused") != 1 {
		t.Errorf("the pause is in the changelog %d times, want once: %s", strings.Count(text, "all paused"), text)
	}
	do(303, "action", "resume", "limit", "all")
	if n := paused(); n != 0 {
		t.Errorf("%d parts are still paused", n)
	}
	if text := do(422, "action", "change", "limit", "all", "rate", "3/day"); !strings.Contains(text, "want at least 4/day, one for each of the 4 shards of queue pages") {
		t.Errorf("a rate that cannot be divided: %s", text)
	}
	do(303, "action", "change", "limit", "all", "rate", "42/day")
	sum := 0
	for _, l := range limits("all") {
		sum += l.Rate.N
	}
	if sum != 42 {
		t.Errorf("the parts add up to %d/day, want 42/day", sum)
	}

	blocked := func(limit string) (n int) {
		for _, limiter := range parts {
			blocks, err := limiter.Blocks(t.Context(), limit)
			w.must(err)
			n += len(blocks)
		}
		return n
	}
	for limit, places := range map[string]int{"all": 4, "site": 1} {
		do(303, "action", "block", "limit", limit, "key", "k", "for", time.Hour.String())
		if n := blocked(limit); n != places {
			t.Errorf("%s: blocked in %d shards, want %d", limit, n, places)
		}
		do(303, "action", "reset", "limit", limit, "key", "k")
		do(303, "action", "unblock", "limit", limit, "key", "k")
		if n := blocked(limit); n != 0 {
			t.Errorf("%s: still blocked in %d shards", limit, n)
		}
	}
	for path, want := range map[string]string{"/?open=site&q=k": "Busiest keys", "/waiting": "4 lanes", "/jobs": "Archived"} {
		if got := ask(p, request("GET", path, nil)); got.StatusCode != 200 || !strings.Contains(body(t, got), want) {
			t.Errorf("%s: %d without %q", path, got.StatusCode, want)
		}
	}
}
