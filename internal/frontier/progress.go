package frontier

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// State is the state of a URL, as users see it.
type State = string

// The states of URLs that have a job, or had one.
const (
	Waiting    State = "waiting"
	Fetched    State = "fetched"
	Redirected State = "redirected"
	Missing    State = "missing" // a permanent 4xx, or a redirect without a valid target
	Failed     State = "failed"  // the job is archived or dropped; an operator can run an archived job again
)

// The states of URLs that are left out.
const (
	Disallowed   State = "disallowed"     // robots.txt disallows the URL
	MaxPages     State = "max_pages"      // the crawl has reached MaxURLs
	MaxHostPages State = "max_host_pages" // the URL's host has reached MaxHostURLs
	TooDeep      State = "too_deep"       // the URL is more links away from the seed than the seed's Depth
	OtherHost    State = "other_host"     // the crawl may not visit the URL's host
	Excluded     State = "excluded"       // CrawlHandler.Include or Exclude leaves the URL out
)

// States returns all states, in the order in which lists show them.
func States() []State {
	return []State{
		Waiting, Fetched, Redirected, Missing, Failed, Disallowed, MaxPages, MaxHostPages, TooDeep, OtherHost, Excluded,
	}
}

// Counts holds the number of a crawl's URLs in each state. Found is the sum of all states except
// LeftOut.
type Counts struct {
	Found      int     `json:"found"`
	Waiting    int     `json:"waiting" redis:"n:waiting"`
	Fetched    int     `json:"fetched" redis:"n:fetched"`
	Redirected int     `json:"redirected" redis:"n:redirected"`
	Missing    int     `json:"missing" redis:"n:missing"`
	Failed     int     `json:"failed" redis:"n:failed"`
	LeftOut    LeftOut `json:"left_out"`
}

// LeftOut holds the number of URLs that a crawl has left out, by reason. A crawl that knows twice
// MaxURLs URLs stores no further URLs that it leaves out, but counts each link to such a URL.
type LeftOut struct {
	Disallowed   int `json:"disallowed" redis:"n:disallowed"`
	MaxPages     int `json:"max_pages" redis:"n:max_pages"`
	MaxHostPages int `json:"max_host_pages" redis:"n:max_host_pages"`
	TooDeep      int `json:"too_deep" redis:"n:too_deep"`
	OtherHost    int `json:"other_host" redis:"n:other_host"`
	Excluded     int `json:"excluded" redis:"n:excluded"`
	// Unread counts the links that pages and sitemaps have beyond the maximum for one page.
	Unread int `json:"unread" redis:"n:unread"`
}

// Sum returns the sum of all counts, including Unread.
func (l LeftOut) Sum() int {
	return l.Disallowed + l.MaxPages + l.MaxHostPages + l.TooDeep + l.OtherHost + l.Excluded + l.Unread
}

// Progress is the progress of a crawl, which is complete when no URL waits.
type Progress struct {
	Name  string    `json:"name"`
	Began time.Time `json:"began"` // time of the crawl's start, by Redis's clock
	// Ended is the time at which a job last took a URL. It is zero while a URL waits.
	Ended time.Time `json:"ended,omitzero"`
	Counts
}

// Crawls returns the names of the scope's crawls, sorted by the time at which a job last took a URL
// of the crawl, the latest first.
func (f *Frontier) Crawls(ctx context.Context) ([]string, error) {
	return f.rdb.ZRevRange(ctx, f.prefix+"crawls", 0, -1).Result()
}

// Progress returns the progress of a crawl. ok is false if there is no crawl of that name.
func (f *Frontier) Progress(ctx context.Context, crawl string) (p Progress, ok bool, err error) {
	pipe := f.rdb.Pipeline()
	about := pipe.HGetAll(ctx, f.key("crawl", crawl))
	last := pipe.ZScore(ctx, f.prefix+"crawls", crawl)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return p, false, err
	}
	if about.Val()["start"] == "" {
		return p, false, about.Err()
	}
	var began struct {
		At int64 `redis:"began"`
	}
	if err := errors.Join(about.Scan(&began), about.Scan(&p.Counts), about.Scan(&p.LeftOut)); err != nil {
		return p, false, fmt.Errorf("crawl %s: %w", crawl, err)
	}
	p.Name, p.Began = crawl, time.UnixMicro(began.At)
	p.Found = p.Waiting + p.Fetched + p.Redirected + p.Missing + p.Failed
	if p.Waiting == 0 && last.Val() > 0 {
		p.Ended = time.UnixMicro(int64(last.Val()))
	}
	return p, true, nil
}

// URL is a URL that a crawl knows.
type URL struct {
	State State  `json:"state"`
	URL   string `json:"url"`
	From  string `json:"from,omitempty"` // the page that first linked the URL; empty for a seed
	File  string `json:"file,omitempty"` // name of the saved page's file; empty if the page was not saved
}

// URLs calls fn with the URLs of a crawl that are in a state, a few hundred at a time, in no order.
// An empty state means any state. While the crawl runs, fn can get a URL twice. URLs ends at the
// first error of fn.
func (f *Frontier) URLs(ctx context.Context, crawl string, state State, fn func([]URL) error) error {
	for cursor := uint64(0); ; {
		pairs, next, err := f.rdb.HScan(ctx, f.key("crawl_seen", crawl), cursor, "", 500).Result()
		if err != nil {
			return fmt.Errorf("crawl %s: %w", crawl, err)
		}
		var urls []URL
		for i := 0; i+1 < len(pairs); i += 2 {
			// See lua/crawl/include/crawl.lua: the state, the page, and the job or the file.
			lines := strings.SplitN(pairs[i+1], "\n", 3)
			if len(lines) != 3 || state != "" && state != lines[0] {
				continue
			}
			url := URL{State: lines[0], URL: pairs[i], From: lines[1]}
			if url.State == Fetched {
				url.File = lines[2]
			}
			urls = append(urls, url)
		}
		if len(urls) > 0 {
			if err := fn(urls); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
