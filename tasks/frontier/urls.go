package frontier

import (
	"context"
	"fmt"
	"strings"
)

// StateNames are the names of the states by which URLs are listed.
var StateNames = []string{
	"waiting", "fetched", "redirected", "missing", "failed",
	"disallowed", "max_pages", "max_host_pages", "too_deep", "other_host", "excluded",
}

var stateNames = map[State]string{
	Unasked: "waiting", Waiting: "waiting", Fetched: "fetched", Redirected: "redirected", Missing: "missing", Failed: "failed",
	Disallowed: "disallowed", MaxPages: "max_pages", MaxHostPages: "max_host_pages", TooDeep: "too_deep",
	OtherHost: "other_host", Excluded: "excluded",
}

// URL is a URL that a crawl knows.
type URL struct {
	State string `json:"state"` // one of StateNames
	URL   string `json:"url"`
	From  string `json:"from,omitempty"` // the page that linked it first; empty for a seed
}

// urlsEach is how many URLs are read at once.
const urlsEach = 500

// URLs calls each with the URLs of a crawl, some hundred at a time, in no order: those in the
// state of that name, or all if the name is empty. It takes two round trips for each call. While
// the crawl goes on a URL can come twice. An error of each ends the list.
func (f *Frontier) URLs(ctx context.Context, crawl, state string, each func([]URL) error) error {
	seen := f.key("crawl_seen", crawl)
	for cursor := uint64(0); ; {
		pairs, next, err := f.rdb.HScan(ctx, seen, cursor, "", urlsEach).Result()
		if err != nil {
			return fmt.Errorf("crawl %s: %w", crawl, err)
		}
		var urls []URL
		var pages []string // by URL, the digest of the page that linked it
		for i := 1; i < len(pairs); i += 2 {
			r, ok := readRecord(pairs[i])
			if name := stateNames[r.state]; ok && name != "" && (state == "" || state == name) {
				urls, pages = append(urls, URL{State: name, URL: r.url}), append(pages, r.from)
			}
		}
		if len(urls) > 0 {
			records, err := f.rdb.HMGet(ctx, seen, pages...).Result()
			if err != nil {
				return fmt.Errorf("crawl %s: %w", crawl, err)
			}
			for i, value := range records {
				text, _ := value.(string)
				page, _ := readRecord(text)
				urls[i].From = page.url
			}
			if err := each(urls); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// A record is what lua/crawl/include/crawl.lua writes of a URL.
type record struct {
	state     State
	from, url string
}

func readRecord(text string) (r record, ok bool) {
	const head = 1 + 16
	if len(text) < head {
		return r, false
	}
	url, _, ok := strings.Cut(text[head:], "\n")
	return record{State(text[:1]), text[1:head], url}, ok
}
