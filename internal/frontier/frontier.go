// Package frontier keeps in Redis what a crawl knows: the URLs it has found, what became of
// each, and the robots.txt of each origin. All workers of a scope share it.
//
// A job takes its URL with Claim, records with Found what the page links, enqueues jobs for
// the new URLs, and records with Done what became of its own URL. A worker may die between
// any two of these steps. Its job then runs again and repeats all of them, so each step can
// be taken twice.
//
// A crawl is identified by its name. When nothing of a crawl waits any more, the next seed
// that is enqueued for it starts it again, and its URLs are forgotten.
package frontier

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/script"
)

// The scripts that this package runs.
var (
	crawlClaimScript = script.New("crawl/claim")
	crawlDoneScript  = script.New("crawl/done")
	crawlFoundScript = script.New("crawl/found")
)

const (
	// crawlTTL is how long a crawl is kept after its last job. It is enough for a crawl that
	// runs once a month.
	crawlTTL = 90 * 24 * time.Hour
	// idleTimeout is how long a crawl waits for jobs if none of them takes a URL. They may be
	// lost: deleted by hand, or archived when their worker died. It is longer than asynq's
	// longest pause between two attempts, which is four days before the last of 25.
	idleTimeout = 7 * 24 * time.Hour
)

// Frontier holds all crawls of a scope. It is safe for concurrent use by any number of
// processes. Its methods take one round trip each unless they say otherwise. After an error
// of Redis it is unknown whether a change was made; repeating the call is safe.
type Frontier struct {
	// MaxURLs and MaxHostURLs are how many URLs a crawl may have, in all and on one host.
	// URLs that robots.txt disallows do not count, and seeds are accepted beyond the bounds.
	MaxURLs, MaxHostURLs int

	rdb    redis.UniversalClient
	prefix string
}

// New returns the frontier of a scope, without bounds. An empty scope means "default".
func New(rdb redis.UniversalClient, scope string) *Frontier {
	if scope == "" {
		scope = "default"
	}
	return &Frontier{math.MaxInt32, math.MaxInt32, rdb, script.Prefix(scope)}
}

// Crawl is a crawl from its start until another one of the same name starts.
type Crawl struct {
	Name string
	// Start is the moment in µs at which the seed was enqueued that started the crawl. Of
	// two crawls of one name, the later one has the larger Start.
	Start int64
}

// Claim is a job's request to fetch a URL. URLs must be in canonical form: two different texts
// are two URLs.
type Claim struct {
	Crawl
	URL, From string // From is the page that linked the URL; empty for a seed
	// Job is the job's ID with its queue. The job owns the URL until Done, and may claim it
	// again each time it runs.
	Job string
	// Allowed reports whether robots.txt is known to allow the URL. Until then the URL does
	// not count for its host.
	Allowed bool
}

// The results of a claim. The job may call Found and Done only after Take.
const (
	Take  = "take"  // the job may fetch the URL
	Done  = "done"  // the URL is finished
	Other = "other" // another job owns it
	Over  = "over"  // another crawl of that name has started
	Full  = "full"  // the URL is new, and the crawl has as many as it may have
)

// Claim lets a job take its URL. It returns the crawl that the job belongs to and the result.
// After Over the crawl is the current one.
//
// A seed that was enqueued after the crawl started restarts it if none of its URLs waits, or
// if no job has taken a URL for a week. Any other seed joins the crawl.
func (f *Frontier) Claim(ctx context.Context, c Claim) (crawl Crawl, result string, err error) {
	kind, allowed := "seed", ""
	if c.From != "" {
		kind = ""
	}
	if c.Allowed {
		allowed = "1"
	}
	reply, err := crawlClaimScript.Run(ctx, f.rdb, f.keys(), c.Name, c.Start, kind, Digest(c.URL), c.URL, c.From, canonical.HostOf(c.URL), c.Job,
		allowed, crawlTTL.Milliseconds(), idleTimeout.Milliseconds(), f.MaxURLs, f.MaxHostURLs).StringSlice()
	if err != nil {
		return crawl, "", fmt.Errorf("crawl %s: %w", c.Name, err)
	}
	start, err := strconv.ParseInt(reply[0], 10, 64)
	return Crawl{c.Name, start}, reply[1], err
}

// Begin starts a crawl and ends the current one of its name, whose jobs do nothing more. It
// takes two round trips.
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

// Link is a URL that a page links, and the state that it gets if it is new.
type Link struct {
	URL   string
	State State
}

// Found records the links of a page and returns a state for each. Waiting and Unasked mean
// that the caller has to enqueue a job for the URL, MaxPages and MaxHostPages that the crawl has
// no room for it, and "" that the URL is known. If the page's job runs again, Found asks again
// for the jobs that have not started. It returns nil if another crawl of that name has started.
func (f *Frontier) Found(ctx context.Context, crawl Crawl, page string, links []Link) ([]State, error) {
	args := []any{crawl.Name, crawl.Start, crawlTTL.Milliseconds(), f.MaxURLs, f.MaxHostURLs, page}
	for _, l := range links {
		args = append(args, Digest(l.URL), l.URL, canonical.HostOf(l.URL), string(l.State))
	}
	reply, err := crawlFoundScript.Run(ctx, f.rdb, f.keys(), args...).StringSlice()
	if err != nil {
		return nil, fmt.Errorf("crawl %s: %w", crawl.Name, err)
	}
	if len(reply) < len(links) {
		return nil, nil
	}
	states := make([]State, len(links))
	for i := range links {
		states[i] = State(reply[i])
	}
	return states, nil
}

// Done records what became of a URL, and how many links of the page were not read. If
// another crawl of that name has started, Done does nothing.
func (f *Frontier) Done(ctx context.Context, crawl Crawl, url string, state State, unread int) error {
	err := crawlDoneScript.Run(ctx, f.rdb, f.keys(), crawl.Name, crawl.Start, crawlTTL.Milliseconds(), Digest(url),
		canonical.HostOf(url), string(state), unread).Err()
	if err != nil {
		return fmt.Errorf("crawl %s: %w", crawl.Name, err)
	}
	return nil
}

// keys are the keys of every script: the prefix, from which it builds the others.
func (f *Frontier) keys() []string { return []string{f.prefix} }

func (f *Frontier) key(name, of string) string { return f.prefix + name + ":" + of }

// Digest identifies a URL within a crawl: half of its SHA-256, as 16 bytes. URLs can be long,
// and a crawl names each more than once.
func Digest(url string) string {
	sum := sha256.Sum256([]byte(url))
	return string(sum[:16])
}
