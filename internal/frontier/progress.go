package frontier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// State is the state of a URL. It is one letter, to save memory in Redis.
type State string

// The states of URLs that have a job, or had one.
const (
	Unasked    State = "q" // waits for a job, and the robots.txt of its origin is not known yet
	Waiting    State = "w"
	Fetched    State = "d"
	Redirected State = "r"
	Missing    State = "m" // a permanent 4xx, or a redirect that leads nowhere
	Failed     State = "f" // its job is archived or dropped; it may be run again
)

// The states of URLs that are left out.
const (
	Disallowed   State = "x" // by robots.txt
	MaxPages     State = "b" // the crawl has reached MaxURLs
	MaxHostPages State = "h" // the URL's host has reached MaxHostURLs
	TooDeep      State = "p"
	OtherHost    State = "o" // the crawl does not go to its host
	Excluded     State = "e" // by the patterns of the crawl
)

// stateNames holds the names that users see, in the order of lists.
var stateNames = []struct {
	state State
	name  string
}{
	{Waiting, "waiting"}, {Unasked, "waiting"}, {Fetched, "fetched"}, {Redirected, "redirected"}, {Missing, "missing"},
	{Failed, "failed"}, {Disallowed, "disallowed"}, {MaxPages, "max_pages"}, {MaxHostPages, "max_host_pages"},
	{TooDeep, "too_deep"}, {OtherHost, "other_host"}, {Excluded, "excluded"},
}

// StateNames returns the names by which URLs are listed.
func StateNames() []string {
	var names []string
	for _, s := range stateNames {
		names = append(names, s.name)
	}
	return slices.Compact(names)
}

func (s State) name() string {
	for _, n := range stateNames {
		if n.state == s {
			return n.name
		}
	}
	return ""
}

// Counts holds the number of a crawl's URLs in each state. Found is the sum of all states except
// LeftOut.
type Counts struct {
	Found      int     `json:"found"`
	Waiting    int     `json:"waiting"`
	Fetched    int     `json:"fetched"`
	Redirected int     `json:"redirected"`
	Missing    int     `json:"missing"`
	Failed     int     `json:"failed"`
	LeftOut    LeftOut `json:"left_out"`
}

// LeftOut holds the number of URLs that a crawl has left out, by reason. A crawl remembers at most
// MaxURLs of these URLs. Any other URL is counted each time it is found.
type LeftOut struct {
	Disallowed   int `json:"disallowed"`
	MaxPages     int `json:"max_pages"`
	MaxHostPages int `json:"max_host_pages"`
	TooDeep      int `json:"too_deep"`
	OtherHost    int `json:"other_host"`
	Excluded     int `json:"excluded"`
	// Unread counts the links that pages and sitemaps have beyond the maximum for one page.
	Unread int `json:"unread"`
}

// Sum returns the number of URLs that are left out for any reason.
func (l LeftOut) Sum() int {
	return l.Disallowed + l.MaxPages + l.MaxHostPages + l.TooDeep + l.OtherHost + l.Excluded + l.Unread
}

// Progress is the progress of a crawl. A crawl is complete when no URL waits, unless an operator
// runs a failed job again.
type Progress struct {
	Name  string    `json:"name"`
	Began time.Time `json:"began"` // by Redis's clock
	// Ended is the time of the last claim, or zero while a URL waits.
	Ended time.Time `json:"ended,omitzero"`
	Counts
}

// Crawls returns the names of the crawls, the most recently active first. A crawl is forgotten
// after 90 days without a job.
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
	number := func(field string) int {
		n, _ := strconv.Atoi(about.Val()[field])
		return n
	}
	count := func(s State) int { return number("n:" + string(s)) }
	p = Progress{Name: crawl, Began: time.UnixMicro(int64(number("began"))), Counts: Counts{
		Waiting: count(Unasked) + count(Waiting), Fetched: count(Fetched), Redirected: count(Redirected),
		Missing: count(Missing), Failed: count(Failed),
		LeftOut: LeftOut{
			Disallowed: count(Disallowed), MaxPages: count(MaxPages), MaxHostPages: count(MaxHostPages), TooDeep: count(TooDeep),
			OtherHost: count(OtherHost), Excluded: count(Excluded), Unread: number("n:unread"),
		},
	}}
	p.Found = p.Waiting + p.Fetched + p.Redirected + p.Missing + p.Failed
	if p.Waiting == 0 && last.Val() > 0 {
		p.Ended = time.UnixMicro(int64(last.Val()))
	}
	return p, true, nil
}

// URL is a URL that a crawl knows.
type URL struct {
	State string `json:"state"` // one of StateNames
	URL   string `json:"url"`
	From  string `json:"from,omitempty"` // the page that linked it first; empty for a seed
}

// URLs calls each with the URLs of a crawl that are in a state, or in any state if the name is
// empty: a few hundred URLs at a time, in no order. While the crawl runs, a URL can be listed
// twice. An error of each ends the list.
func (f *Frontier) URLs(ctx context.Context, crawl, state string, each func([]URL) error) error {
	for cursor := uint64(0); ; {
		pairs, next, err := f.rdb.HScan(ctx, f.key("crawl_seen", crawl), cursor, "", 500).Result()
		if err != nil {
			return fmt.Errorf("crawl %s: %w", crawl, err)
		}
		var urls []URL
		for i := 1; i < len(pairs); i += 2 {
			// See lua/crawl/include/crawl.lua: the state and the URL, the page, the job.
			lines := strings.SplitN(pairs[i], "\n", 3)
			if len(lines) < 3 || lines[0] == "" {
				continue
			}
			if name := State(lines[0][:1]).name(); name != "" && (state == "" || state == name) {
				urls = append(urls, URL{State: name, URL: lines[0][1:], From: lines[1]})
			}
		}
		if len(urls) > 0 {
			if err := each(urls); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
