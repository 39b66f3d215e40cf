package frontier_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/tasks/frontier"
)

const page = "http://a.test/"

var first = frontier.Run{Crawl: "it", Name: "1"}

// claim has a job of another page's take a URL.
func claim(t *testing.T, f *frontier.Frontier, run frontier.Run, url, job string, depth int) (string, int) {
	t.Helper()
	_, answer, depth, err := f.Claim(t.Context(), frontier.Claim{Run: run, Link: frontier.Link{URL: url, Depth: depth}, Job: job})
	if err != nil {
		t.Fatal(err)
	}
	return answer, depth
}

// seed has a job take a URL that somebody has enqueued.
func seed(t *testing.T, f *frontier.Frontier, run, url string, anew bool) (string, string) {
	t.Helper()
	c := frontier.Claim{Run: frontier.Run{Crawl: "it", Name: run}, Link: frontier.Link{URL: url}, Job: "default/seed-" + run, Seed: true, Anew: anew}
	got, answer, _, err := f.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return got.Name, answer
}

func done(t *testing.T, f *frontier.Frontier, run frontier.Run, url string, depth int, state frontier.State) int {
	t.Helper()
	got, err := f.Done(t.Context(), run, frontier.Link{URL: url, Depth: depth}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// verdicts are a run's of URLs that were found in a state.
func verdicts(t *testing.T, f *frontier.Frontier, run frontier.Run, state frontier.State, links []frontier.Link) []frontier.Verdict {
	t.Helper()
	var finds []frontier.Find
	for _, l := range links {
		finds = append(finds, frontier.Find{Link: l, State: state})
	}
	verdicts, err := f.Found(t.Context(), run, finds)
	if err != nil {
		t.Fatal(err)
	}
	return verdicts
}

func found(t *testing.T, f *frontier.Frontier, run frontier.Run, links ...frontier.Link) (added int, deeper []frontier.Link) {
	t.Helper()
	for i, verdict := range verdicts(t, f, run, frontier.Waiting, links) {
		switch verdict {
		case frontier.Unseen:
			added++
		case frontier.Deeper:
			deeper = append(deeper, links[i])
		}
	}
	return added, deeper
}

func counts(t *testing.T, f *frontier.Frontier) frontier.Counts {
	t.Helper()
	p, ok, err := f.Progress(t.Context(), "it")
	if err != nil || !ok {
		t.Fatalf("progress: %v, %v", ok, err)
	}
	sum := frontier.Counts{}
	for _, h := range p.Hosts {
		sum.Found += h.Found
	}
	if sum.Found != p.Found {
		t.Errorf("the hosts have %d URLs and all of them %d", sum.Found, p.Found)
	}
	return p.Counts
}

// A URL is one job's until that is done, and nobody's after that.
func TestClaim(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		steps := []struct {
			job  string
			end  frontier.State // what becomes of it after the claim, if anything
			want string
		}{
			{"default/1", "", frontier.Take},
			{"default/2", "", frontier.Other},
			{"other/1", "", frontier.Other}, // the same ID in two queues is two jobs
			{"default/1", frontier.Failed, frontier.Take},
			{"default/2", frontier.Fetched, frontier.Take}, // what has failed may be tried again
			{"default/1", "", frontier.Done},
			{"default/2", "", frontier.Done},
		}
		for i, s := range steps {
			if got, _ := claim(t, f, first, page, s.job, 0); got != s.want {
				t.Errorf("claim %d, of %s: %s, want %s", i, s.job, got, s.want)
			}
			if s.end != "" {
				done(t, f, first, page, 0, s.end)
			}
		}
		if diff := cmp.Diff(frontier.Counts{Found: 1, Fetched: 1}, counts(t, f)); diff != "" {
			t.Error(diff)
		}
	})
}

// A seed joins the run in progress, and begins the next when that is over or when
// it is told to; the jobs of a run that is over hear that.
func TestRuns(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		want := func(run, answer, wantRun, wantAnswer string) {
			t.Helper()
			if run != wantRun || answer != wantAnswer {
				t.Errorf("run %s, %s; want run %s, %s", run, answer, wantRun, wantAnswer)
			}
		}
		run, answer := seed(t, f, "1", page, false)
		want(run, answer, "1", frontier.Take)
		run, answer = seed(t, f, "2", page+"b", false)
		want(run, answer, "1", frontier.Take)
		done(t, f, first, page, 0, frontier.Fetched)
		done(t, f, first, page+"b", 0, frontier.Missing)
		run, answer = seed(t, f, "3", page, false)
		want(run, answer, "3", frontier.Take)
		run, answer = seed(t, f, "2", page+"c", false) // late, and of a run that never was
		want(run, answer, "3", frontier.Take)
		run, answer = seed(t, f, "4", page, true)
		want(run, answer, "4", frontier.Take)
		if answer, _ := claim(t, f, frontier.Run{Crawl: "it", Name: "3"}, page+"d", "default/d", 0); answer != frontier.Old {
			t.Errorf("a job of run 3 in run 4: %s, want %s", answer, frontier.Old)
		}
		if added, _ := found(t, f, frontier.Run{Crawl: "it", Name: "3"}, frontier.Link{URL: page + "e"}); added != 0 {
			t.Errorf("run 3 adds %d URLs to run 4", added)
		}
		if got := done(t, f, frontier.Run{Crawl: "it", Name: "3"}, page, 0, frontier.Fetched); got != -1 {
			t.Errorf("run 3 is done with a page in run 4: %d, want -1", got)
		}
		if diff := cmp.Diff(frontier.Counts{Found: 1, Waiting: 1}, counts(t, f)); diff != "" {
			t.Error(diff)
		}
	})
}

// A run whose jobs are gone is over after a week, though somebody tries to begin the next
// one each night.
func TestRunWithoutJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		f := frontier.New(rdb, "")
		seed(t, f, "0", page, false)
		found(t, f, frontier.Run{Crawl: "it", Name: "0"}, frontier.Link{URL: page + "lost"})
		done(t, f, frontier.Run{Crawl: "it", Name: "0"}, page, 0, frontier.Fetched)
		for night := 1; night <= 7; night++ {
			time.Sleep(24*time.Hour + time.Minute)
			run, answer := seed(t, f, fmt.Sprint(night), page, false)
			want, wantAnswer := "0", frontier.Done
			if night == 7 {
				want, wantAnswer = "7", frontier.Take
			}
			if run != want || answer != wantAnswer {
				t.Errorf("night %d: run %s, %s; want run %s, %s", night, run, answer, want, wantAnswer)
			}
		}
	})
}

// Of two ways to a page the shorter counts, whenever it is found.
func TestDepth(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		link := func(depth int) frontier.Link { return frontier.Link{URL: page, Depth: depth} }
		seed(t, f, "1", page+"seed", false)
		if added, deeper := found(t, f, first, link(1), link(1)); added != 1 || deeper != nil {
			t.Errorf("found twice at once: %d new, %v deeper; want 1", added, deeper)
		}
		found(t, f, first, link(3))
		if _, depth := claim(t, f, first, page, "default/1", 1); depth != 3 {
			t.Errorf("its job is to follow its links to %d, want 3", depth)
		}
		found(t, f, first, link(5)) // while it is being fetched
		if got := done(t, f, first, page, 3, frontier.Fetched); got != 5 {
			t.Errorf("done at 3: %d, want to be told 5", got)
		}
		if got := done(t, f, first, page, 5, frontier.Fetched); got != 5 {
			t.Errorf("done at 5: %d", got)
		}
		_, deeper := found(t, f, first, link(4), link(7)) // after that
		if diff := cmp.Diff([]frontier.Link{link(7)}, deeper); diff != "" {
			t.Error(diff)
		}
		verdicts(t, f, first, frontier.Followed, deeper)
		if _, deeper := found(t, f, first, link(7)); deeper != nil {
			t.Errorf("followed, and %v once more", deeper)
		}
		for range 2 { // to look changes nothing
			got := verdicts(t, f, first, frontier.Look, []frontier.Link{link(7), link(8), {URL: page + "new"}})
			want := []frontier.Verdict{frontier.Seen, frontier.Deeper, frontier.Unseen}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// Whatever is noted twice counts once.
func TestCounts(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		states := []frontier.State{
			frontier.Fetched, frontier.Unchanged, frontier.Redirected, frontier.Missing, frontier.Disallowed, frontier.Failed, frontier.Waiting,
		}
		for i, state := range states {
			url := fmt.Sprintf("http://%d.test/", i%2)
			url += string(state)
			seed(t, f, "1", url, false)
			for range 2 {
				if state != frontier.Waiting {
					done(t, f, first, url, 0, state)
				}
			}
		}
		want := frontier.Counts{Found: 7, Fetched: 1, Unchanged: 1, Redirected: 1, Missing: 1, Disallowed: 1, Failed: 1, Waiting: 1}
		if diff := cmp.Diff(want, counts(t, f)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPages(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		if got, err := f.Page(t.Context(), "it", page); got != nil || err != nil {
			t.Errorf("before it was fetched: %v, %v", got, err)
		}
		seed(t, f, "1", page, false)
		want := &frontier.Page{Run: "1", ETag: `"x"`, Modified: "then", Links: []string{page + "a"}, Sitemaps: []string{page + "map"}, To: page + "to"}
		if _, err := f.Done(t.Context(), first, frontier.Link{URL: page}, frontier.Fetched, want); err != nil {
			t.Fatal(err)
		}
		got, err := f.Page(t.Context(), "it", page)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(err, diff)
		}
		rdb.Set(t.Context(), "hg:{default}:crawl_before:it", "no hash", 0)
		if got, err := f.Page(t.Context(), "it", page+"a"); err == nil {
			t.Errorf("what an earlier run has kept cannot be read, and that is %v, want an error", got)
		}
		rdb.HSet(t.Context(), "hg:{default}:crawl_pages:it", frontier.Digest(page), "garbage")
		if _, err := f.Page(t.Context(), "it", page); err == nil {
			t.Error("garbage is a page")
		}
	})
}

// Of a page that runs go on to meet something is kept, also where it is missing; of one
// that they do not it goes.
func TestPagesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		f, ctx := frontier.New(rdb, ""), t.Context()
		const month, days = 30 * 24 * time.Hour, 24 * time.Hour
		begun := time.Now()
		for run := range 10 {
			this := frontier.Run{Crawl: "it", Name: fmt.Sprint(run)}
			for _, url := range []string{"fetched", "missing", "gone"} {
				if url == "gone" && run > 0 {
					continue
				}
				seed(t, f, this.Name, page+url, false)
				var keep *frontier.Page
				if url == "fetched" || run == 0 {
					keep = &frontier.Page{Run: this.Name, ETag: url}
				}
				if _, err := f.Done(ctx, this, frontier.Link{URL: page + url}, frontier.Fetched, keep); err != nil {
					t.Fatal(err)
				}
			}
			for _, url := range []string{"fetched", "missing", "gone"} {
				got, err := f.Page(ctx, "it", page+url)
				if err != nil {
					t.Fatal(err)
				}
				age := time.Since(begun) / days
				if there := got != nil; url != "gone" && !there || url == "gone" && (age < 90 && !there || age > 210 && there) {
					t.Errorf("%s after %d days: %+v", url, age, got)
				}
			}
			time.Sleep(month)
		}
		for key, want := range map[string]int64{"crawl_pages": 2, "crawl_before": 0} {
			if n := rdb.HLen(ctx, "hg:{default}:"+key+":it").Val(); n != want {
				t.Errorf("%s has %d pages, want %d", key, n, want)
			}
		}
	})
}

// One job asks for a robots.txt, the others wait; and after no answer nobody asks
// for a while.
func TestRobots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		f, ctx := frontier.New(rdb, ""), t.Context()
		const origin = "http://a.test"
		want := func(what string, want frontier.RobotsHold, wantWait time.Duration) {
			t.Helper()
			got, wait, err := f.AskRobots(ctx, origin, time.Minute)
			if got != want || wait != wantWait || err != nil {
				t.Errorf("%s: %q for %s, %v; want %q for %s", what, got, wait, err, want, wantWait)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		want("the first", "", 0)
		want("the second", frontier.RobotsAsked, time.Minute)
		time.Sleep(time.Minute)
		want("when the first has died", "", 0)
		must(f.HoldRobots(ctx, origin, frontier.RobotsFailed, 30*time.Second))
		want("after no answer", frontier.RobotsFailed, 30*time.Second)
		must(f.HoldRobots(ctx, origin, frontier.RobotsAsked, 10*time.Second))
		want("when it is elsewhere", frontier.RobotsAsked, 10*time.Second)
		must(f.KeepRobots(ctx, origin, 200, []byte("text"), 0))
		want("after an answer", "", 0)

		check := func(what string, wantOK, fresh bool) {
			t.Helper()
			r, ok, err := f.Robots(ctx, origin)
			if err != nil || ok != wantOK || r.Fresh != fresh || ok && (r.Status != 200 || string(r.Text) != "text") {
				t.Errorf("%s: %+v, %v, %v; want there %v, fresh %v", what, r, ok, err, wantOK, fresh)
			}
		}
		check("at once", true, true)
		time.Sleep(25 * time.Hour)
		check("after a day", true, false)
		time.Sleep(30 * 24 * time.Hour)
		check("after a month", false, false)
	})
}

// A crawl is forgotten 90 days after its last job, with all of its keys.
func TestForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini, rdb := redistest.Mini(t)
		f := frontier.New(rdb, "")
		seed(t, f, "1", page, false)
		time.Sleep(60 * 24 * time.Hour)
		if _, err := f.Done(t.Context(), first, frontier.Link{URL: page}, frontier.Fetched, &frontier.Page{Run: "1"}); err != nil {
			t.Fatal(err)
		}
		claim(t, f, first, page, "default/1", 0)
		time.Sleep(89 * 24 * time.Hour)
		if names, err := f.Crawls(t.Context()); len(names) != 1 || err != nil {
			t.Errorf("after 89 days: %q, %v; want it", names, err)
		}
		time.Sleep(2 * 24 * time.Hour)
		other := frontier.Claim{Run: frontier.Run{Crawl: "other", Name: "1"}, Link: frontier.Link{URL: page}, Job: "default/2", Seed: true}
		if _, _, _, err := f.Claim(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if names, err := f.Crawls(t.Context()); len(names) != 1 || names[0] != "other" || err != nil {
			t.Errorf("after 91 days: %q, %v; want the other alone", names, err)
		}
		if _, ok, err := f.Progress(t.Context(), "it"); ok || err != nil {
			t.Errorf("it is known after 91 days, %v; keys %q", err, mini.Keys())
		}
	})
}

// What a run has no room for is counted and not noted, and nobody fetches it.
func TestARunIsBounded(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "").Bounded(5, 3)
		urls := func(host string, n int) (links []frontier.Link) {
			for i := range n {
				links = append(links, frontier.Link{URL: fmt.Sprintf("http://%s/%d", host, i), Depth: 1})
			}
			return links
		}
		seed(t, f, "1", "http://a.test/seed", false)
		if added, _ := found(t, f, first, urls("a.test", 4)...); added != 2 {
			t.Errorf("%d are new of a host that may have 3, want 2", added)
		}
		got := verdicts(t, f, first, frontier.Look, append(urls("a.test", 3), urls("b.test", 3)...))
		want := []frontier.Verdict{frontier.Seen, frontier.Seen, frontier.NoRoom, frontier.Unseen, frontier.Unseen, frontier.NoRoom}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if added, _ := found(t, f, first, urls("b.test", 3)...); added != 2 {
			t.Errorf("%d are new of a run that may have 5, want 2", added)
		}
		verdicts(t, f, first, frontier.Beyond, urls("b.test", 3))
		if answer, _ := claim(t, f, first, "http://c.test/", "default/new", 0); answer != frontier.Full {
			t.Errorf("a job beyond: %s, want %s", answer, frontier.Full)
		}
		if answer, _ := claim(t, f, first, "http://b.test/1", "default/b1", 0); answer != frontier.Take {
			t.Errorf("a job within: %s, want %s", answer, frontier.Take)
		}
		if _, answer := seed(t, f, "1", "http://a.test/mine", false); answer != frontier.Take {
			t.Errorf("what somebody enqueued: %s, want %s", answer, frontier.Take)
		}
		if diff := cmp.Diff(frontier.Counts{Found: 6, Waiting: 6, Beyond: 4}, counts(t, f)); diff != "" {
			t.Error(diff)
		}
		if added, _ := found(t, frontier.New(rdb, ""), first, urls("a.test", 4)...); added != 2 {
			t.Errorf("%d are new of a run without bounds, want 2", added)
		}
	})
}
