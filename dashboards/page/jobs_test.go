package page_test

import (
	"fmt"
	"html"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// listed adds 45 archived, 3 scheduled, 2 pending and 2 waiting jobs.
func listed(w *fixture) {
	w.t.Helper()
	add := func(id string, opts ...asynq.Option) {
		_, err := w.client.Enqueue(asynq.NewTask("mail:send", []byte(`{"to":"`+id+`"}`), append(opts, asynq.TaskID(id))...))
		w.must(err)
	}
	inspector := asynq.NewInspectorFromRedisClient(w.rdb)
	for i := range 45 {
		add(fmt.Sprint("lost-", i))
		w.must(inspector.ArchiveTask("default", fmt.Sprint("lost-", i)))
	}
	for i := range 3 {
		add(fmt.Sprint("later-", i), asynq.ProcessIn(time.Hour), asynq.Queue("reports"))
	}
	for i := range 2 {
		add(fmt.Sprint("next-", i))
	}
	for i := range 3 {
		add(fmt.Sprint("denied-", i))
		w.wait(fmt.Sprint("denied-", i), throttle.Need{Limit: "slots", Key: "shop", Cost: 2})
	}
}

// TestJobs: the list shows the jobs of a filter, page by page, or what is wrong with the filter.
func TestJobs(t *testing.T) {
	w := miniFixture(t)
	listed(w)
	p := w.page()
	for _, tt := range []struct {
		query string
		jobs  int
		shows string
	}{
		{"", 25, "All <small class=\"num\">53</small>"},
		{"state=archived", 25, "Archived <small class=\"num\">45</small>"},
		{"state=archived&queue=reports", 0, "No job matches"},
		{"state=archived&queue=reports", 0, `<a href="./jobs?queue=reports">All`},
		{"state=scheduled", 3, "runs "},
		{"state=waiting,granted", 1, "waits for slots of shop"},
		{"limit=slots&key=shop", 1, "waits for slots of shop"},
		{"limit=slots&key=other", 0, "No job matches"},
		{"payload=lost-4", 6, "lost-44"},
		{"type=none", 0, "No job matches"},
		{"error=denied", 0, "No job matches"},
		{"older=1h&state=pending", 0, "No job matches"},
		{"state=nope", 0, "state nope: want active, granted, waiting"},
		{"older=soon", 0, "older soon: want a duration such as 90s"},
		{"limit=none", 0, "no such limit: none"},
		{"state=pending&limit=slots", 0, "state pending: want waiting or granted: a limit and a key"},
		{"queue=none", 0, "No job matches"},
		{"from=nonsense&state=scheduled", 3, "runs "},
	} {
		text := body(t, ask(p, request("GET", "/jobs?"+tt.query, nil)))
		if n := strings.Count(text, `<th scope="row">`); n != tt.jobs || !strings.Contains(text, tt.shows) {
			t.Errorf("%s: %d jobs, want %d and %q", tt.query, n, tt.jobs, tt.shows)
		}
	}
	seen, path := map[string]bool{}, "/jobs?state=archived"
	for n := 0; path != "" && n < 4; n++ {
		text := body(t, ask(p, request("GET", path, nil)))
		for i := range 45 {
			id := fmt.Sprint("lost-", i)
			if shown := strings.Contains(text, ">"+id+"</a>"); shown && seen[id] {
				t.Errorf("%s is on two pages", id)
			} else if shown {
				seen[id] = true
			}
		}
		_, path, _ = strings.Cut(text, `rel="next" href=".`)
		path, _, _ = strings.Cut(path, `"`)
		path = html.UnescapeString(path)
	}
	if len(seen) != 45 {
		t.Errorf("the pages have %d of 45 jobs", len(seen))
	}
}

// TestJob_Attempts: a job's page shows how its attempts ended, without secrets.
func TestJob_Attempts(t *testing.T) {
	w := miniFixture(t)
	w.enqueue("tried", "mail", "")
	for i, a := range []asynqdb.Attempt{
		{At: time.Now(), Took: 1500 * time.Millisecond, Worker: "host-1:77", Error: "refused: token=sesame"}, {At: time.Now()},
	} {
		if err := asynqdb.New(w.rdb).NoteAttempt(t.Context(), "default", "tried", a); err != nil {
			t.Fatal(i, err)
		}
	}
	w.must(asynqdb.New(w.rdb).NoteAttempt(t.Context(), "default", "gone", asynqdb.Attempt{}))
	if w.rdb.Exists(t.Context(), asynqdb.Hash("default", "gone")).Val() != 0 {
		t.Error("a deleted job has attempts")
	}
	text := body(t, ask(w.page(), request("GET", "/job?queue=default&id=tried", nil)))
	for _, want := range []string{"1.5 s", "host-1:77", "refused: token=", "died", "Last attempts"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(text, "sesame") {
		t.Error("the page shows a secret")
	}
}

// TestTrouble: the first page says which limits do not exist although jobs wait for them, and which
// archives grow.
func TestTrouble(t *testing.T) {
	w := miniFixture(t)
	listed(w)
	w.wait("denied-1", throttle.Need{Limit: "mail", Cost: 10})
	w.wait("denied-2", throttle.Need{Limit: "mail", Cost: 10})
	w.must(w.limiter.Delete(t.Context(), "mail"))
	text := body(t, ask(w.page(), request("GET", "/", nil)))
	for _, want := range []string{
		`limit mail does not exist: 1 job waits for it`,
		`<a class="chip bad" href="./jobs?queue=default&amp;state=archived">45 jobs of queue default were archived in the last hour</a>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}
