package frontier_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/tasks/frontier"
)

// A site can make up hosts without end. Of those without a page Redis keeps nothing.
func TestHostsBeyondAreNotKept(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "").Bounded(2, 2)
		seed(t, f, "1", page, false)
		for batch := range 3 {
			links := []frontier.Link{{URL: fmt.Sprintf("%s%d", page, batch)}}
			for i := range 100 {
				links = append(links, frontier.Link{URL: fmt.Sprintf("http://h%d-%d.test/", batch, i)})
			}
			found(t, f, first, links...)
			verdicts(t, f, first, frontier.Beyond, links[1:])
		}
		p, _, err := f.Progress(t.Context(), "it")
		want := []frontier.HostCounts{{Host: "a.test", Counts: frontier.Counts{Found: 2, Waiting: 2, Beyond: 2}}}
		if diff := cmp.Diff(want, p.Hosts); diff != "" || p.Beyond != 602 || err != nil {
			t.Errorf("%d beyond, %v, hosts -want +got:\n%s", p.Beyond, err, diff)
		}
		if n := rdb.HLen(t.Context(), "hg:{default}:crawl_hosts:it|1").Val(); n != 4 {
			t.Errorf("%d counts, want those of one host and of all", n)
		}
	})
}

// What is kept of a page is bounded, whatever it leads to; the next run asks for it anew.
func TestWhatIsKeptOfAPageIsBounded(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f := frontier.New(rdb, "")
		seed(t, f, "1", page, false)
		large := &frontier.Page{Run: "1", ETag: "x", Modified: "then", To: page + "to", Level: 1}
		for range 5000 {
			random := make([]byte, 500)
			_, _ = rand.Read(random)
			large.Links = append(large.Links, page+hex.EncodeToString(random))
		}
		if _, err := f.Done(t.Context(), first, frontier.Link{URL: page}, frontier.Fetched, large); err != nil {
			t.Fatal(err)
		}
		got, err := f.Page(t.Context(), "it", page)
		if diff := cmp.Diff(&frontier.Page{Run: "1", To: page + "to", Level: 1}, got); diff != "" || err != nil {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
	})
}

// A site can have as many origins as ports, each with a robots.txt that came packed.
func TestRobotsAreKeptPacked(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		f, text := frontier.New(rdb, ""), bytes.Repeat([]byte("Disallow: /\n"), 40_000)
		if err := f.KeepRobots(t.Context(), "http://a.test", 200, text, 0); err != nil {
			t.Fatal(err)
		}
		got, ok, err := f.Robots(t.Context(), "http://a.test")
		if !bytes.Equal(got.Text, text) || got.Status != 200 || !got.Fresh || !ok || err != nil {
			t.Errorf("%d bytes, status %d, fresh %t, %t, %v", len(got.Text), got.Status, got.Fresh, ok, err)
		}
		total := 0
		for _, value := range rdb.HGetAll(t.Context(), "hg:{default}:robots:http://a.test").Val() {
			total += len(value)
		}
		if total > len(text)/100 {
			t.Errorf("%d bytes are kept of %d that are the same", total, len(text))
		}
	})
}
