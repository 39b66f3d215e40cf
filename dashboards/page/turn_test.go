package page_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestLimitsAreReadWhenTheyChange: who takes permits and gives them back does not have
// the limits read, who changes one does, and so does a Redis that has lost all.
func TestLimitsAreReadWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		w := newWorld(t, rdb)
		counted := &counting{}
		rdb.AddHook(counted)
		p := w.page()
		look := func(path string) string {
			time.Sleep(2 * time.Second)
			return body(t, ask(p, request("GET", path, nil)))
		}
		look("/")
		before := counted.limits.Load()
		for range 3 {
			slot := throttle.Need{Limit: "slots"}
			_, err := w.limiter.Acquire(t.Context(), throttle.Job{JobID: throttle.JobID{ID: "a"}}, slot)
			w.must(err)
			w.must(w.limiter.Free(t.Context(), "a", slot))
			look("/")
		}
		if n := counted.limits.Load() - before; n != 0 {
			t.Errorf("the limits were read %d times, and none had changed", n)
		}
		w.must(w.limiter.Set(t.Context(), throttle.Limit{Name: "mail", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(77)}))
		if text := look("/"); !strings.Contains(text, "sliding_log 77/s") {
			t.Error("a change is not on the page two seconds later")
		}
		m.FlushAll()
		if text := look("/changes"); !strings.Contains(text, "Nothing was changed yet") {
			t.Errorf("the page has a changelog that Redis has lost:\n%s", text)
		}
		if text := look("/"); !strings.Contains(text, "There are no limits yet") {
			t.Error("the page has limits that Redis has lost")
		}
	})
}

// TestChangeIsSeenAtOnce: who has changed something sees that when the page comes back,
// also where somebody who was a turn behind has looked at it meanwhile.
func TestChangeIsSeenAtOnce(t *testing.T) {
	w := miniWorld(t)
	p := w.page()
	open := url.Values{"open": {"mail"}}
	late := p.Behind(t.Context(), "", open)
	if got := ask(p, request("POST", "/do", url.Values{"action": {"pause"}, "limit": {"mail"}})); got.StatusCode != 303 {
		t.Fatalf("pause: %d", got.StatusCode)
	}
	w.must(late())
	if text := body(t, ask(p, request("GET", "/?"+open.Encode(), nil))); !strings.Contains(text, "It is paused") {
		t.Error("the page does not say that the limit was paused just now")
	}
}

// TestLateSummary: what a process writes after Redis has told the page its time counts,
// too, where the next ten seconds begin in between.
func TestLateSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := miniWorld(t)
		p := w.page()
		begins := time.Now().Truncate(10 * time.Second).Add(20 * time.Second)
		time.Sleep(time.Until(begins) - time.Millisecond)
		summary, err := json.Marshal(history.Summary{Limits: map[string]history.Limited{"mail": {Allowed: 4321, Permits: 4321}}})
		w.must(err)
		id := history.StreamID(begins.Add(time.Millisecond))
		w.must(w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: history.Prefix("crawl") + "history", ID: id, Values: []any{"s", summary}}).Err())
		ask(p, request("GET", "/", nil))
		time.Sleep(time.Minute)
		if text := body(t, ask(p, request("GET", "/?open=mail", nil))); !strings.Contains(text, "4,321") {
			t.Error("permits of a summary are not on the page")
		}
	})
}
