package frontier

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// State is what has become of a URL. A state is one letter because Redis keeps one for
// every URL of a crawl.
type State string

// The states of URLs that have a job, or had one.
const (
	Unasked    State = "q" // waits, and robots.txt of its origin is not known yet
	Waiting    State = "w"
	Fetched    State = "d"
	Redirected State = "r"
	Missing    State = "m" // a 4xx that stays one, or a redirect that leads nowhere
	Failed     State = "f" // its job is archived or dropped; it may be run again
)

// The states of URLs that are left out.
const (
	Disallowed   State = "x" // by robots.txt
	MaxPages     State = "b" // the crawl has as many pages as it may have
	MaxHostPages State = "h" // its host has
	TooDeep      State = "p"
	OtherHost    State = "o" // the crawl does not go to its host
	Excluded     State = "e" // by the patterns of the crawl
)

func (s State) isPage() bool { return strings.Contains("qwdrmf", string(s)) }

// Counts is how many URLs a crawl has found, and what has become of them. Found is
// the sum of all but LeftOut.
type Counts struct {
	Found      int     `json:"found"`
	Waiting    int     `json:"waiting"`
	Fetched    int     `json:"fetched"`
	Redirected int     `json:"redirected"`
	Missing    int     `json:"missing"`
	Failed     int     `json:"failed"`
	LeftOut    LeftOut `json:"left_out"`
}

// LeftOut is how many URLs a crawl has left out, by reason. As many of them as the crawl may
// have pages are remembered and count once; one beyond that counts each time that it is found.
type LeftOut struct {
	Disallowed   int `json:"disallowed"`
	MaxPages     int `json:"max_pages"`
	MaxHostPages int `json:"max_host_pages"`
	TooDeep      int `json:"too_deep"`
	OtherHost    int `json:"other_host"`
	Excluded     int `json:"excluded"`
	// Unread are links of pages and sitemaps that have more than are read.
	Unread int `json:"unread"`
}

// Sum is how many are left out for any reason.
func (l LeftOut) Sum() int {
	return l.Disallowed + l.MaxPages + l.MaxHostPages + l.TooDeep + l.OtherHost + l.Excluded + l.Unread
}

// makeCounts are the counts of a crawl's hash. A state that it does not know, of a later
// version, is not counted.
func makeCounts(about map[string]string) (c Counts) {
	of := func(states ...State) (sum int) {
		for _, s := range states {
			n, _ := strconv.Atoi(about["n:"+string(s)])
			sum += n
		}
		return sum
	}
	c = Counts{
		Waiting: of(Unasked, Waiting), Fetched: of(Fetched), Redirected: of(Redirected), Missing: of(Missing), Failed: of(Failed),
		LeftOut: LeftOut{
			Disallowed: of(Disallowed), MaxPages: of(MaxPages), MaxHostPages: of(MaxHostPages), TooDeep: of(TooDeep),
			OtherHost: of(OtherHost), Excluded: of(Excluded), Unread: of("unread"),
		},
	}
	c.Found = c.Waiting + c.Fetched + c.Redirected + c.Missing + c.Failed
	return c
}

// Progress is how far a crawl has come. If nothing waits it is complete, until a job of it
// that failed is run again.
type Progress struct {
	Name  string    `json:"name"`
	Began time.Time `json:"began"` // by Redis's clock
	// Ended is when the last URL was taken, if nothing waits any more.
	Ended time.Time `json:"ended,omitzero"`
	Counts
}

// Crawls are the names of the crawls. The first is the one that took a URL last. A crawl
// is forgotten after 90 days without a job.
func (f *Frontier) Crawls(ctx context.Context) ([]string, error) {
	return f.rdb.ZRevRange(ctx, f.prefix+"crawls", 0, -1).Result()
}

// Progress is how far a crawl has come; ok is false if there is no crawl of that name.
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
	began, _ := strconv.ParseInt(about.Val()["began"], 10, 64)
	p = Progress{Name: crawl, Began: time.UnixMicro(began), Counts: makeCounts(about.Val())}
	if p.Waiting == 0 && last.Val() > 0 {
		p.Ended = time.UnixMicro(int64(last.Val()))
	}
	return p, true, nil
}
