package page_test

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestReader: a change on the page is on the next page, another one two seconds later. What Redis
// has lost is no longer on the page.
func TestReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, rdb := redistest.Mini(t)
		w := newFixture(t, rdb)
		p := w.page()
		shows := func(path, want string) {
			t.Helper()
			if text := body(t, ask(p, request("GET", path, nil))); !strings.Contains(text, want) {
				t.Errorf("%s does not say %q", path, want)
			}
		}
		shows("/?open=mail", "sliding_log 10/s")
		if got := ask(p, request("POST", "/do", url.Values{"action": {"pause"}, "limit": {"mail"}})); got.StatusCode != 303 {
			t.Fatalf("pause: %d", got.StatusCode)
		}
		shows("/?open=mail", "It is paused")
		w.must(w.limiter.Set(t.Context(), throttle.Limit{Name: "mail", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(77)}))
		time.Sleep(2 * time.Second)
		shows("/", "sliding_log 77/s")
		m.FlushAll()
		time.Sleep(2 * time.Second)
		shows("/changes", "Nothing was changed yet")
		shows("/", "There are no limits yet")
	})
}

// TestChange_ArchivesJobs: a change that would archive waiting jobs is not made.
func TestChange_ArchivesJobs(t *testing.T) {
	w := miniFixture(t)
	p := w.page()
	w.wait("first", throttle.Need{Limit: "mail", Cost: 8})
	w.wait("second", throttle.Need{Limit: "mail", Cost: 8})
	for rate, code := range map[string]int{"9/s": 303, "4/s": 422} {
		got := ask(p, request("POST", "/do", url.Values{"action": {"change"}, "limit": {"mail"}, "rate": {rate}}))
		const want = "after this change, limit mail gives at most 4 permits at once, too few for 1 waiting job, which will be archived: use &#34;headgate-worker limits set mail --yes&#34;"
		if text := body(t, got); got.StatusCode != code || code == 422 && !strings.Contains(text, want) {
			t.Errorf("%s: %d, want %d\n%s", rate, got.StatusCode, code, text)
		}
	}
}
