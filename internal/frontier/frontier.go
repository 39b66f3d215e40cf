// Package frontier keeps the state of crawls in Redis: the URLs that a crawl has found, the state
// of each URL, and the robots.txt of each origin. All workers of a scope share this state.
//
// A job claims its URL with Claim, records the links of the page with Found, enqueues jobs for the
// new URLs, and records the final state of its own URL with Done. If a worker dies between two
// steps, its job runs again from the first step, so each step can be repeated.
//
// A seed is a job that no other job of the crawl enqueued. A crawl is complete when none of its
// URLs waits. A complete crawl starts again, with an empty set of URLs, when a later seed runs.
package frontier

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/script"
)

var (
	crawlClaimScript = script.New("crawl/claim")
	crawlDoneScript  = script.New("crawl/done")
	crawlFoundScript = script.New("crawl/found")
)

// crawlTTL is the time for which Redis keeps a crawl after the crawl's last job.
const crawlTTL = 90 * 24 * time.Hour

// Frontier holds all crawls of a scope. It is safe for concurrent use. A call that has returned an
// error of Redis can be repeated, whether it has changed the state or not.
type Frontier struct {
	// MaxURLs is the maximum number of URLs of a crawl. URLs that are left out, such as those that
	// robots.txt disallows, do not count. Claim accepts seeds beyond the maximum.
	MaxURLs int
	// MaxHostURLs is the same maximum for the URLs of one host.
	MaxHostURLs int

	rdb    redis.UniversalClient
	prefix string
}

// New returns the frontier of a scope, without maxima. An empty scope means "default".
func New(rdb redis.UniversalClient, scope string) *Frontier {
	if scope == "" {
		scope = "default"
	}
	return &Frontier{math.MaxInt32, math.MaxInt32, rdb, script.Prefix(scope)}
}

// Crawl is one run of a crawl, from its start until the next start.
type Crawl struct {
	Name string
	// Start is the time in µs since 1970 at which the crawl's first seed was enqueued. A seed calls
	// Claim with its own time.
	Start int64
}

// The results of Claim. The job may call Found and Done only after Take.
const (
	Take  = "take"  // the job may fetch the URL
	Done  = "done"  // the URL has a final state: no job may take it
	Other = "other" // another job owns the URL
	Over  = "over"  // another crawl of that name has started
)

// Claim lets a job take its URL, which must be in canonical form. job is the job's queue and ID.
// From its first Claim until Done, the job owns the URL, and each of its runs can claim the URL
// again. from is the page that linked the URL, and is empty for a seed.
//
// Claim returns the current crawl of that name and the result. A seed that was enqueued after the
// crawl's Start starts the crawl again if none of its URLs waits. Any other seed joins the crawl. If
// Redis has forgotten the crawl, any job starts it again.
func (f *Frontier) Claim(ctx context.Context, c Crawl, url, from, job string) (crawl Crawl, result string, err error) {
	reply, err := crawlClaimScript.Run(ctx, f.rdb, []string{f.prefix}, c.Name, c.Start, url, from, canonical.HostOf(url), job,
		crawlTTL.Milliseconds()).StringSlice()
	if err != nil {
		return crawl, "", fmt.Errorf("crawl %s: %w", c.Name, err)
	}
	start, err := strconv.ParseInt(reply[0], 10, 64)
	return Crawl{c.Name, start}, reply[1], err
}

// Begin starts a crawl at once, even if URLs of the current crawl of that name wait. From then on,
// Claim returns Over to the jobs that the earlier crawl has enqueued.
func (f *Frontier) Begin(ctx context.Context, c Crawl) error {
	now, err := f.rdb.Time(ctx).Result()
	if err == nil {
		about := f.key("crawl", c.Name)
		pipe := f.rdb.TxPipeline()
		pipe.Unlink(ctx, about, f.key("crawl_seen", c.Name), f.key("crawl_hosts", c.Name))
		pipe.HSet(ctx, about, "start", c.Start, "began", now.UnixMicro())
		pipe.PExpire(ctx, about, crawlTTL)
		pipe.ZAdd(ctx, f.prefix+"crawls", redis.Z{Score: float64(now.UnixMicro()), Member: c.Name})
		_, err = pipe.Exec(ctx)
	}
	if err != nil {
		return fmt.Errorf("crawl %s: %w", c.Name, err)
	}
	return nil
}

// Link is a URL that a page links. State is the state that Found gives to a new URL if no maximum
// is reached.
type Link struct {
	URL   string
	State State
}

// Found records the links of a page and returns a state for each link:
//
//   - Waiting: the caller has to enqueue a job for the URL. If the page's job runs again, Found
//     returns Waiting again for URLs whose jobs have not started.
//   - "": the URL was recorded before, and needs no job.
//   - Any other state: the URL is left out for that reason.
//
// A URL that was left out before, and not as Disallowed, is treated as if it were new. Found returns
// no states if another crawl of that name has started.
func (f *Frontier) Found(ctx context.Context, crawl Crawl, page string, links []Link) ([]State, error) {
	args := []any{crawl.Name, crawl.Start, crawlTTL.Milliseconds(), f.MaxURLs, f.MaxHostURLs, page}
	for _, l := range links {
		args = append(args, l.URL, canonical.HostOf(l.URL), l.State)
	}
	states, err := crawlFoundScript.Run(ctx, f.rdb, []string{f.prefix}, args...).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("crawl %s: %w", crawl.Name, err)
	}
	return states, nil
}

// Done records the state of a URL after its job, and adds unread to the crawl's LeftOut.Unread. file is
// the file of a fetched page, or empty. If
// another crawl of that name has started, or if the URL's state is final already, Done changes
// nothing.
func (f *Frontier) Done(ctx context.Context, crawl Crawl, url string, state State, file string, unread int) error {
	err := crawlDoneScript.Run(ctx, f.rdb, []string{f.prefix}, crawl.Name, crawl.Start, crawlTTL.Milliseconds(), url,
		canonical.HostOf(url), state, unread, file).Err()
	if err != nil {
		return fmt.Errorf("crawl %s: %w", crawl.Name, err)
	}
	return nil
}

func (f *Frontier) key(name, of string) string { return f.prefix + name + ":" + of }
