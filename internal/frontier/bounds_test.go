package frontier_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

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
		if want := []frontier.State{"w", "w", "h", "h"}; !slices.Equal(got, want) {
			t.Errorf("found %q, want %q: the seed and 2 of them have room", got, want)
		}
		wantCounts(t, f, frontier.Counts{Found: 3, Waiting: 3, LeftOut: frontier.LeftOut{MaxHostPages: 2}})
		found(t, f, crawl(1), frontier.Waiting, urls("b.test", 0, 3)...)
		if answer := claim(t, f, crawl(1), "http://c.test/", "default/new"); answer != frontier.Full {
			t.Errorf("a job beyond: %s, want %s", answer, frontier.Full)
		}
		if answer := claim(t, f, crawl(1), "http://b.test/1", "default/b1"); answer != frontier.Take {
			t.Errorf("a job within: %s, want %s", answer, frontier.Take)
		}
		if _, answer := seed(t, f, 1, "http://a.test/3"); answer != frontier.Take {
			t.Errorf("a seed that was left out as a link: %s, want %s", answer, frontier.Take)
		}
		wantCounts(t, f, frontier.Counts{Found: 6, Waiting: 6, LeftOut: frontier.LeftOut{MaxHostPages: 1, MaxPages: 2}})
	})
}

// A URL that robots.txt disallows leaves its room to others, and one whose robots.txt is not
// known has none on its host. What was left out comes in when it is found again.
func TestCrawl_Disallowed_TakesNoRoom(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := bounded(rdb, 100, 2)
		seed(t, f, 1, "http://a.test/")
		found(t, f, crawl(1), frontier.Unasked, urls("b.test", 0, 6)...)
		for i, url := range urls("b.test", 0, 6) {
			_, answer, err := f.Claim(t.Context(), frontier.Claim{Crawl: crawl(1), URL: url, From: page, Job: fmt.Sprint(i), Allowed: i >= 3})
			want := frontier.Take
			if i == 5 {
				want = frontier.Full
			}
			if answer != want || err != nil {
				t.Errorf("%s: %s, %v; want %s", url, answer, err, want)
			}
			if i < 3 {
				done(t, f, crawl(1), url, frontier.Disallowed)
			}
		}
		wantCounts(t, f, frontier.Counts{Found: 3, Waiting: 3, LeftOut: frontier.LeftOut{Disallowed: 3, MaxHostPages: 1}})
		done(t, f, crawl(1), "http://b.test/3", frontier.Disallowed) // its robots.txt has changed
		found(t, f, crawl(1), frontier.Waiting, urls("b.test", 5, 6)...)
		wantCounts(t, f, frontier.Counts{Found: 3, Waiting: 3, LeftOut: frontier.LeftOut{Disallowed: 4}})
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
