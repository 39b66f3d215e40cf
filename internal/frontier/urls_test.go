package frontier_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

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
