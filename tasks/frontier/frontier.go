// Package frontier keeps in Redis what a crawl knows: which URLs it has found, what has
// become of each, and each origin's robots.txt. All workers of a scope share it.
//
// A job takes a URL with Claim, notes with Found what the page links once the jobs of
// those URLs are enqueued, and notes with Done what has become of the URL. A worker may
// die between any two of these steps. Its job then runs again, takes the URL again and
// repeats what it did, so each step can be taken twice.
//
// A crawl is its name. When nothing of a crawl waits any more, the next seed that is
// enqueued for it begins it again, and what was known of its URLs is forgotten.
//
// Package tasks runs crawls on the frontier; other programs want Crawls, Progress and URLs.
package frontier

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/script"
)

// life is how long a crawl is known after its last job. That covers a crawl which is
// run once a month.
const life = 90 * 24 * time.Hour

// patience is how long a crawl waits for jobs if none of them takes a URL: they may be gone,
// deleted by hand, or archived when their worker died. It is longer than the longest of
// asynq's own pauses between two attempts: the last of 25 takes four days.
const patience = 7 * 24 * time.Hour

// Frontier is the frontier of all crawls of a scope. It is safe for concurrent
// use, by any number of processes. Its methods take one round trip each unless they
// say another number. Their errors are Redis's: what was done then is open, and
// to repeat the call is safe.
type Frontier struct {
	rdb    redis.UniversalClient
	prefix string
	// How many URLs a crawl may have, in all and on a host.
	most, mostOfHost int
}

// New returns the frontier in a Redis. An empty scope means "default". New asks nothing
// of Redis.
func New(rdb redis.UniversalClient, scope string) *Frontier {
	if scope == "" {
		scope = "default"
	}
	return &Frontier{rdb, script.Prefix(scope), math.MaxInt32, math.MaxInt32}
}

// Bounded is the frontier with bounds for what a crawl may have: so many URLs, and so many
// of one host. URLs that robots.txt disallows do not count, and seeds are above the bounds.
func (f *Frontier) Bounded(urls, ofHost int) *Frontier {
	bounded := *f
	bounded.most, bounded.mostOfHost = urls, ofHost
	return &bounded
}

// Crawl is a crawl from its beginning until another one of the same name begins.
type Crawl struct {
	Name string
	// Start tells the crawls of a name apart, and the later one has the larger number. It
	// is the moment in µs at which the seed was enqueued that began the crawl.
	Start int64
}

// Claim is a job's wish to fetch a URL. URLs must be in the one form that the caller has for
// them: each text is a URL of its own here.
type Claim struct {
	Crawl
	URL, From string // From is the page that linked the URL; empty for a seed
	// Job is the job's name, with its queue: the URL stays that job's until Done,
	// and the same job may take it as often as it runs.
	Job string
	// Allowed is whether robots.txt is known to allow the URL. Until then the URL takes no
	// room on its host.
	Allowed bool
}

// The answers to a claim. Only after Take may the job go on to Found and Done.
const (
	Take  = "take"  // the job may fetch the URL
	Done  = "done"  // what becomes of the URL is known
	Other = "other" // another job has it
	Over  = "over"  // another crawl of that name has begun
	Full  = "full"  // the URL is new, and the crawl has as many as it may have
)

// Claim has a job take its URL. It returns the crawl that the job belongs to, and the answer.
// After Over the crawl is the one in progress.
//
// A seed that was enqueued after the crawl began begins it again if none of its URLs waits,
// or if no job has taken one for a week. Any other seed joins.
func (f *Frontier) Claim(ctx context.Context, c Claim) (crawl Crawl, answer string, err error) {
	kind, from, allowed := "seed", "", ""
	if c.From != "" {
		kind, from = "", Digest(c.From)
	}
	if c.Allowed {
		allowed = "1"
	}
	reply, err := crawlClaimScript.Run(ctx, f.rdb, f.keys(), c.Name, c.Start, kind, Digest(c.URL), c.URL, from, Host(c.URL), c.Job,
		allowed, life.Milliseconds(), patience.Milliseconds(), f.most, f.mostOfHost).StringSlice()
	if err != nil {
		return crawl, "", fmt.Errorf("crawl %s: %w", c.Name, err)
	}
	start, err := strconv.ParseInt(reply[0], 10, 64)
	return Crawl{c.Name, start}, reply[1], err
}

// Begin begins a crawl, and ends the one of its name: the jobs of that do nothing more. It takes
// two round trips.
func (f *Frontier) Begin(ctx context.Context, c Crawl) error {
	now, err := f.rdb.Time(ctx).Result()
	if err == nil {
		about := f.key("crawl", c.Name)
		pipe := f.rdb.TxPipeline()
		pipe.Unlink(ctx, about, f.key("crawl_seen", c.Name), f.key("crawl_hosts", c.Name))
		pipe.HSet(ctx, about, "start", c.Start, "began", now.UnixMicro())
		pipe.PExpire(ctx, about, life)
		pipe.ZAdd(ctx, f.prefix+"crawls", redis.Z{Score: float64(now.UnixMicro()), Member: c.Name})
		_, err = pipe.Exec(ctx)
	}
	if err != nil {
		return fmt.Errorf("crawl %s: %w", c.Name, err)
	}
	return nil
}

// Look is what a crawl knows of URLs that a page links, and how much room it has.
type Look struct {
	Known []bool // by URL: whether there is nothing to do for it
	room  int
	hosts map[string]int // the room on each host
}

// Room says why the crawl has no room for a URL, or nothing. On the URL's host the URL
// wants room only if robots.txt allows it.
func (l *Look) Room(url string, allowed bool) State {
	switch {
	case l.room <= 0:
		return MaxPages
	case allowed && l.hosts[Host(url)] <= 0:
		return MaxHostPages
	}
	return ""
}

// Take counts a URL that gets room.
func (l *Look) Take(url string, allowed bool) {
	l.room--
	if allowed {
		l.hosts[Host(url)]--
	}
}

// Look looks URLs up. It returns nil if another crawl of that name has begun.
func (f *Frontier) Look(ctx context.Context, crawl Crawl, urls []string) (*Look, error) {
	l := &Look{Known: make([]bool, len(urls)), room: f.most, hosts: map[string]int{}}
	var digests, hosts []string
	for _, url := range urls {
		digests, hosts = append(digests, Digest(url)), append(hosts, Host(url))
	}
	if len(urls) == 0 {
		return l, nil
	}
	pipe := f.rdb.Pipeline()
	about := pipe.HGetAll(ctx, f.key("crawl", crawl.Name))
	records := pipe.HMGet(ctx, f.key("crawl_seen", crawl.Name), digests...)
	pages := pipe.HMGet(ctx, f.key("crawl_hosts", crawl.Name), hosts...)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("crawl %s: %w", crawl.Name, err)
	}
	if about.Val()["start"] != strconv.FormatInt(crawl.Start, 10) {
		return nil, nil
	}
	l.room -= makeCounts(about.Val()).Found
	for i, value := range records.Val() {
		record, _ := value.(string)
		l.Known[i] = record != "" && (State(record[:1]).isPage() || State(record[:1]) == Disallowed)
		text, _ := pages.Val()[i].(string)
		n, _ := strconv.Atoi(text)
		l.hosts[hosts[i]] = f.mostOfHost - n
	}
	return l, nil
}

// Find is a URL that a page links, and the state that it has if it is new.
type Find struct {
	URL   string
	State State
}

// Found notes URLs that a page links. It is for after the jobs of new ones were enqueued: a
// job that is enqueued twice is refused, a URL that is noted and has no job would never be
// fetched. If another crawl of that name has begun, Found notes nothing.
func (f *Frontier) Found(ctx context.Context, crawl Crawl, from string, found []Find) error {
	if len(found) == 0 {
		return nil
	}
	args := []any{crawl.Name, crawl.Start, life.Milliseconds(), f.most, f.mostOfHost, Digest(from)}
	for _, l := range found {
		args = append(args, Digest(l.URL), l.URL, Host(l.URL), string(l.State))
	}
	if err := crawlFoundScript.Run(ctx, f.rdb, f.keys(), args...).Err(); err != nil {
		return fmt.Errorf("crawl %s: %w", crawl.Name, err)
	}
	return nil
}

// Done notes what has become of a URL, and how many links of the page were not read. If
// another crawl of that name has begun, Done notes nothing.
func (f *Frontier) Done(ctx context.Context, crawl Crawl, url string, state State, unread int) error {
	err := crawlDoneScript.Run(ctx, f.rdb, f.keys(), crawl.Name, crawl.Start, life.Milliseconds(), Digest(url), Host(url), string(state), unread).Err()
	if err != nil {
		return fmt.Errorf("crawl %s: %w", crawl.Name, err)
	}
	return nil
}

// keys are those of every script: the prefix, from which it builds the rest.
func (f *Frontier) keys() []string { return []string{f.prefix} }

func (f *Frontier) key(name, of string) string { return f.prefix + name + ":" + of }

// Digest is the name of a URL among those of a crawl: half of its SHA-256, as 16
// bytes and not as text. URLs have any length, and a crawl names each more than once.
func Digest(url string) string {
	sum := sha256.Sum256([]byte(url))
	return string(sum[:16])
}

// Host is the host of a URL, by which a crawl counts: without a port, in the one form
// that it has for limits, too. It is empty for what is no URL.
func Host(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	host, _ := canonical.Host(u.Hostname())
	return host
}

func pack(text []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(text)
	err = errors.Join(err, z.Close())
	return b.Bytes(), err
}

func unpack(kept []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(kept))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
