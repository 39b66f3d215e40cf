package page_test

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestReader_Limits: limits are read after a change and after Redis lost its data, not for permits.
func TestReader_Limits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		w := newFixture(t, rdb)
		counted := &counting{}
		rdb.AddHook(redistest.Hook(counted.around))
		p := w.page()
		look := func(path string) string {
			time.Sleep(2 * time.Second)
			return body(t, ask(p, request("GET", path, nil)))
		}
		look("/")
		before := counted.limits.Load()
		for range 3 {
			slot := throttle.Need{Limit: "slots"}
			_, err := w.limiter.Acquire(t.Context(), waitdb.Job{JobID: throttle.JobID{ID: "a"}}, slot)
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

// TestReader_ChangeIsShown: a change is on the next page, also if another viewer had an old snapshot.
func TestReader_ChangeIsShown(t *testing.T) {
	w := miniFixture(t)
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

// TestChange_ArchivesJobs: a change that would archive waiting jobs is not made.
func TestChange_ArchivesJobs(t *testing.T) {
	w := miniFixture(t)
	p := w.page()
	w.wait("first", throttle.Need{Limit: "mail", Cost: 8})
	w.wait("second", throttle.Need{Limit: "mail", Cost: 8})
	for rate, code := range map[string]int{"9/s": 303, "4/s": 422} {
		got := ask(p, request("POST", "/do", url.Values{"action": {"change"}, "limit": {"mail"}, "rate": {rate}}))
		const want = "limit mail has 1 job waiting that need more than 4 permits at once, and are then archived: use &#34;worker limits set mail --yes&#34;"
		if text := body(t, got); got.StatusCode != code || code == 422 && !strings.Contains(text, want) {
			t.Errorf("%s: %d, want %d\n%s", rate, got.StatusCode, code, text)
		}
	}
}

// TestReader_LastJob: when no job waits any more, the demand is gone in the same snapshot.
func TestReader_LastJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := miniFixture(t)
		w.wait("first", throttle.Need{Limit: "mail", Cost: 8})
		w.wait("last", throttle.Need{Limit: "mail", Cost: 8})
		p := w.page()
		if jobs, limits, _ := p.Waits(t.Context()); jobs != 1 || limits != 1 {
			t.Fatalf("%d jobs wait for %d limits, want one for one", jobs, limits)
		}
		_, err := w.limiter.Forget(t.Context(), throttle.JobID{Queue: "default", ID: "last"})
		w.must(err)
		time.Sleep(1600 * time.Millisecond)
		if jobs, limits, forecast := p.Waits(t.Context()); jobs != 0 || limits != 0 || forecast {
			t.Errorf("%d jobs wait for %d limits, with a forecast: %v, want none", jobs, limits, forecast)
		}
	})
}
