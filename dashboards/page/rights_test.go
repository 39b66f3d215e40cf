package page_test

import (
	"testing"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestReadOnly_Rights: a read-only page needs no more rights than docs/operating.md gives its user.
func TestReadOnly_Rights(t *testing.T) {
	server, users := redistest.RunWithUsers(t, "../../docs/operating.md", "crawl")
	all, few := server.Client(), users.Client("page", server)
	t.Cleanup(func() { _, _ = all.Close(), few.Close() })
	w := newFixture(t, all)
	w.enqueue("job", "mail", "")
	w.wait("waits", throttle.Need{Limit: "mail", Cost: 10})
	w.wait("waits too", throttle.Need{Limit: "mail", Cost: 10})

	o := w.options
	o.ReadOnly = true
	o.Limiter = throttle.New(few, throttle.Options{Scope: "crawl", Logger: quiet})
	p, err := page.New(o)
	w.must(err)
	for _, path := range []string{"/", "/?open=mail", "/waiting", "/jobs", "/jobs?state=archived", "/changes", "/find?q=job", "/job?queue=default&id=job"} {
		if got := ask(p, request("GET", path, nil)); got.StatusCode != 200 && got.StatusCode != 303 {
			t.Errorf("%s: %d %.500s", path, got.StatusCode, body(t, got))
		}
	}
	refused, err := all.ACLLog(t.Context(), 128).Result()
	w.must(err)
	for _, r := range refused {
		t.Errorf("it was refused: %s %s %s", r.Reason, r.Context, r.Object)
	}
	if err := few.Set(t.Context(), "hg:{crawl}:limits", "", 0).Err(); err == nil {
		t.Error("it may write")
	}
}
