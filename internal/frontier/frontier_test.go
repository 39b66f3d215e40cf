package frontier_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

const page = "http://a.test/"

// crawl is the crawl that began at a moment.
func crawl(start int64) frontier.Crawl { return frontier.Crawl{Name: "it", Start: start} }

// claim has a job take a URL that the page linked.
func claim(t *testing.T, f *frontier.Frontier, of frontier.Crawl, url, job string) string {
	t.Helper()
	_, answer, err := f.Claim(t.Context(), of, url, page, job)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// seed has a seed take its URL.
func seed(t *testing.T, f *frontier.Frontier, start int64, url string) (int64, string) {
	t.Helper()
	got, answer, err := f.Claim(t.Context(), crawl(start), url, "", fmt.Sprintf("default/seed-%d", start))
	if err != nil {
		t.Fatal(err)
	}
	return got.Start, answer
}

func done(t *testing.T, f *frontier.Frontier, of frontier.Crawl, url string, state frontier.State) {
	t.Helper()
	if err := f.Done(t.Context(), of, url, state, "", 0); err != nil {
		t.Fatal(err)
	}
}

// found records URLs of a state that the page linked.
func found(t *testing.T, f *frontier.Frontier, of frontier.Crawl, state frontier.State, urls ...string) []frontier.State {
	t.Helper()
	var links []frontier.Link
	for _, url := range urls {
		links = append(links, frontier.Link{URL: url, State: state})
	}
	states, err := f.Found(t.Context(), of, page, links)
	if err != nil {
		t.Fatal(err)
	}
	return states
}

// wantCounts compares how far the crawl has come.
func wantCounts(t *testing.T, f *frontier.Frontier, want frontier.Counts) {
	t.Helper()
	p, ok, err := f.Progress(t.Context(), "it")
	if diff := cmp.Diff(want, p.Counts); !ok || err != nil || diff != "" {
		t.Errorf("progress %v, %v, -want +got:\n%s", ok, err, diff)
	}
}

// One job owns a URL until it is done. After that no job can take it.
func TestClaim(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		seed(t, f, 1, page)
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
			if got := claim(t, f, crawl(1), page+"a", s.job); got != s.want {
				t.Errorf("claim %d, of %s: %s, want %s", i, s.job, got, s.want)
			}
			if s.end != "" {
				done(t, f, crawl(1), page+"a", s.end)
			}
		}
		wantCounts(t, f, frontier.Counts{Found: 2, Waiting: 1, Fetched: 1})
	})
}

// A seed joins the running crawl, and starts it again if no URL waits. Begin always starts it again. The
// jobs of the previous crawl do nothing.
func TestCrawl_Seed_BeginsAgain(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		want := func(start, wantStart int64, url, wantAnswer string) {
			t.Helper()
			if got, answer := seed(t, f, start, url); got != wantStart || answer != wantAnswer {
				t.Errorf("seed of %d: crawl %d, %s; want %d, %s", start, got, answer, wantStart, wantAnswer)
			}
		}
		want(1, 1, page, frontier.Take)
		want(2, 1, page+"b", frontier.Take)
		done(t, f, crawl(1), page, frontier.Fetched)
		done(t, f, crawl(1), page+"b", frontier.Missing)
		want(1, 1, page, frontier.Done) // its worker died, and it runs again
		want(1, 1, page+"c", frontier.Take)
		done(t, f, crawl(1), page+"c", frontier.Fetched)
		want(3, 3, page, frontier.Take)
		want(2, 3, page+"c", frontier.Take) // enqueued before the crawl began
		if err := f.Begin(t.Context(), crawl(4)); err != nil {
			t.Fatal(err)
		}
		want(4, 4, page, frontier.Take)
		if answer := claim(t, f, crawl(3), page+"d", "default/d"); answer != frontier.Over {
			t.Errorf("a job of crawl 3 in crawl 4: %s, want %s", answer, frontier.Over)
		}
		if states := found(t, f, crawl(3), frontier.Waiting, page+"e"); len(states) > 0 {
			t.Errorf("crawl 3 found %q, want nothing", states)
		}
		done(t, f, crawl(3), page, frontier.Fetched)
		wantCounts(t, f, frontier.Counts{Found: 1, Waiting: 1})
	})
}

// If a page's job runs again, Found returns the URLs whose jobs have not started.
func TestFound_Repeated_AsksForJobs(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		seed(t, f, 1, page)
		for i, want := range [][]frontier.State{{"waiting", "waiting"}, {"waiting", "waiting"}, {"", "waiting"}} {
			if i == 2 {
				claim(t, f, crawl(1), page+"a", "default/1")
			}
			if got := found(t, f, crawl(1), frontier.Waiting, page+"a", page+"b"); !slices.Equal(got, want) {
				t.Errorf("time %d: %q, want %q", i, got, want)
			}
		}
		other, err := f.Found(t.Context(), crawl(1), page+"other", []frontier.Link{{URL: page + "b", State: frontier.Waiting}})
		if err != nil || !slices.Equal(other, []frontier.State{""}) {
			t.Errorf("another page: %q, %v; want nothing to do", other, err)
		}
	})
}

// A state that is recorded twice counts once.
func TestCounts(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		for _, state := range []frontier.State{frontier.Fetched, frontier.Redirected, frontier.Missing, frontier.Disallowed, frontier.Failed, frontier.Waiting} {
			url := page + string(state)
			seed(t, f, 1, url)
			for range 2 {
				if state == frontier.Waiting {
					continue
				}
				if err := f.Done(t.Context(), crawl(1), url, state, "", 3); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 2 {
			found(t, f, crawl(1), frontier.Waiting, page+"new")
			for _, state := range []frontier.State{frontier.Disallowed, frontier.TooDeep, frontier.OtherHost, frontier.Excluded} {
				found(t, f, crawl(1), state, page+"out"+string(state))
			}
		}
		wantCounts(t, f, frontier.Counts{
			Found: 6, Waiting: 2, Fetched: 1, Redirected: 1, Missing: 1, Failed: 1,
			LeftOut: frontier.LeftOut{Disallowed: 2, TooDeep: 1, OtherHost: 1, Excluded: 1, Unread: 5*3 + 3},
		})
	})
}

// One job requests a robots.txt, and the others wait. After a failure no job requests it for a while.
func TestRobots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		f, ctx := frontier.New(rdb, ""), t.Context()
		const origin = "http://a.test"
		want := func(what string, wait time.Duration) { // wait 0: it may ask
			t.Helper()
			if got, err := f.LockRobots(ctx, origin); err != nil || got != wait {
				t.Errorf("%s: %s, %v; want %s", what, got, err, wait)
			}
		}
		store := func(r frontier.Robots, hold time.Duration) {
			t.Helper()
			if err := f.StoreRobots(ctx, origin, r, hold); err != nil {
				t.Fatal(err)
			}
		}
		wantStored := func(what string, want frontier.Robots) {
			t.Helper()
			got, err := f.Robots(ctx, origin)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
				t.Errorf("%s: %v, -want +got:\n%s", what, err, diff)
			}
		}
		wantStored("at first", frontier.Robots{})
		want("the first", 0)
		want("the second", time.Minute)
		time.Sleep(time.Minute)
		want("when the first has died", 0)
		failed := frontier.Robots{FailingSince: 1, Next: page, Hops: 2}
		store(failed, time.Hour)
		want("after a failure", time.Hour)
		time.Sleep(time.Hour)
		want("after the pause", 0)
		wantStored("after the pause", failed)
		time.Sleep(3 * time.Hour)
		wantStored("hours after that", frontier.Robots{})
		store(failed, 0)
		fetched := frontier.Robots{Known: true, Text: []byte("text")}
		store(fetched, 0)
		want("after an answer", 0)
		wantStored("after an answer", fetched)
		time.Sleep(25 * time.Hour)
		wantStored("after a day", frontier.Robots{})
		prefix := script.Prefix("default")
		rdb.RPush(ctx, prefix+"robots:"+origin, "x")
		rdb.RPush(ctx, prefix+"robots_busy:"+origin, "x")
		wantStored("a record of a wrong type", frontier.Robots{})
		want("after the record", 0)
		rdb.Set(ctx, prefix+"robots_busy:"+origin, "x", 0)
		want("a lock without an end", time.Minute)
		time.Sleep(time.Minute)
		want("a minute later", 0)
	})
}

// A crawl is forgotten 90 days after its last job, with all of its keys.
func TestCrawl_Expires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini, rdb := redistest.Mini(t)
		f := frontier.New(rdb, "")
		seed(t, f, 1, page)
		time.Sleep(60 * 24 * time.Hour)
		claim(t, f, crawl(1), page+"a", "default/1")
		done(t, f, crawl(1), page, frontier.Fetched)
		time.Sleep(89 * 24 * time.Hour)
		if names, err := f.Crawls(t.Context()); len(names) != 1 || err != nil {
			t.Errorf("after 89 days: %q, %v; want it", names, err)
		}
		time.Sleep(2 * 24 * time.Hour)
		if _, _, err := f.Claim(t.Context(), frontier.Crawl{Name: "other", Start: 1}, page, "", "default/2"); err != nil {
			t.Fatal(err)
		}
		if names, err := f.Crawls(t.Context()); len(names) != 1 || names[0] != "other" || err != nil {
			t.Errorf("after 91 days: %q, %v; want the other alone", names, err)
		}
		for _, key := range mini.Keys() {
			if strings.HasSuffix(key, ":it") {
				t.Errorf("%s is there after 91 days", key)
			}
		}
	})
}

// urls are so many of a host.
func urls(host string, from, to int) (urls []string) {
	for i := from; i < to; i++ {
		urls = append(urls, fmt.Sprintf("http://%s/%d", host, i))
	}
	return urls
}

func bounded(rdb redis.UniversalClient, urls, hostURLs int) *frontier.Frontier {
	f := frontier.New(rdb, "")
	f.MaxURLs, f.MaxHostURLs = urls, hostURLs
	return f
}

// A crawl takes as many URLs as it may have, in all and on a host. URLs of a seed are above that.
func TestCrawl_Bounds_LeaveURLsOut(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := bounded(rdb, 5, 3)
		seed(t, f, 1, "http://a.test/seed")
		got := found(t, f, crawl(1), frontier.Waiting, urls("a.test", 0, 4)...)
		if want := []frontier.State{"waiting", "waiting", "max_host_pages", "max_host_pages"}; !slices.Equal(got, want) {
			t.Errorf("found %q, want %q: the seed and 2 of them have room", got, want)
		}
		wantCounts(t, f, frontier.Counts{Found: 3, Waiting: 3, LeftOut: frontier.LeftOut{MaxHostPages: 2}})
		found(t, f, crawl(1), frontier.Waiting, urls("b.test", 0, 3)...)
		if answer := claim(t, f, crawl(1), "http://b.test/1", "default/b1"); answer != frontier.Take {
			t.Errorf("a job within: %s, want %s", answer, frontier.Take)
		}
		if _, answer := seed(t, f, 1, "http://a.test/3"); answer != frontier.Take {
			t.Errorf("a seed that was left out as a link: %s, want %s", answer, frontier.Take)
		}
		wantCounts(t, f, frontier.Counts{Found: 6, Waiting: 6, LeftOut: frontier.LeftOut{MaxHostPages: 1, MaxPages: 1}})
	})
}

// A URL that robots.txt disallows leaves its room to others. A URL that was left out comes in when it is
// found again.
func TestCrawl_Disallowed_TakesNoRoom(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := bounded(rdb, 100, 2)
		seed(t, f, 1, "http://a.test/")
		found(t, f, crawl(1), frontier.Waiting, urls("b.test", 0, 3)...)
		wantCounts(t, f, frontier.Counts{Found: 3, Waiting: 3, LeftOut: frontier.LeftOut{MaxHostPages: 1}})
		done(t, f, crawl(1), "http://b.test/0", frontier.Disallowed)
		found(t, f, crawl(1), frontier.Waiting, urls("b.test", 0, 3)...)
		wantCounts(t, f, frontier.Counts{Found: 3, Waiting: 3, LeftOut: frontier.LeftOut{Disallowed: 1}})
	})
}

// A site can make up URLs without end. Redis keeps as many that are left out as the crawl may
// have pages, and the others are only counted.
func TestCrawl_LeftOut_TakesBoundedMemory(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := bounded(rdb, 20, 20)
		seed(t, f, 1, page)
		for batch := range 3 {
			found(t, f, crawl(1), frontier.TooDeep, urls("deep.test", 100*batch, 100*batch+100)...)
		}
		wantCounts(t, f, frontier.Counts{Found: 1, Waiting: 1, LeftOut: frontier.LeftOut{TooDeep: 300}})
		seen, hosts := rdb.HLen(t.Context(), "hg:{default}:crawl_seen:it").Val(), rdb.HLen(t.Context(), "hg:{default}:crawl_hosts:it").Val()
		if seen != 40 || hosts != 1 {
			t.Errorf("Redis has %d URLs and %d hosts, want 40 and 1", seen, hosts)
		}
	})
}

// The URLs of a crawl are listed by state with the page that linked them, some hundred at a time.
func TestURLs(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		seed(t, f, 1, page)
		many := urls("b.test", 0, 3000)
		found(t, f, crawl(1), frontier.Waiting, many...)
		found(t, f, crawl(1), frontier.TooDeep, page+"deep")
		claim(t, f, crawl(1), page+"gone", "default/1")
		done(t, f, crawl(1), page+"gone", frontier.Missing)
		list := func(state string) (all []string) {
			t.Helper()
			err := f.URLs(t.Context(), "it", state, func(urls []frontier.URL) error {
				if len(urls) > 1500 && !strings.Contains(t.Name(), "miniredis") { // which scans all at once
					t.Errorf("%d URLs at once", len(urls))
				}
				for _, u := range urls {
					all = append(all, fmt.Sprint(u.State, " ", u.URL, " ", u.From))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(all)
			return slices.Compact(all)
		}
		for state, want := range map[string][]string{
			"missing":  {"missing " + page + "gone " + page},
			"too_deep": {"too_deep " + page + "deep " + page},
			"fetched":  nil,
		} {
			if diff := cmp.Diff(want, list(state)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", state, diff)
			}
		}
		if got := list("waiting"); len(got) != 3001 || !slices.Contains(got, "waiting "+page+" ") || !slices.Contains(got, "waiting "+many[7]+" "+page) {
			t.Errorf("%d URLs wait, want 3001 with their pages", len(got))
		}
		if got := list(""); len(got) != 3003 {
			t.Errorf("%d URLs, want 3003", len(got))
		}
	})
}
