// Package frontier keeps in Redis what a crawl knows: which URLs it has found
// and what has become of them, what the next run wants to know of a page, and
// each origin's robots.txt. All workers of a scope share it.
//
// A URL goes from Waiting to one of the other states. A job takes it with Claim,
// notes with Found what it leads to once the jobs of that are enqueued, and notes
// with Done what has become of it. A worker may die between any two of these: its
// job runs again, takes the URL again and repeats what it did, so each step can be
// taken twice.
//
// A URL that is found once more on a shorter way has more depth left than before.
// Its links are then spread again, from what was kept of the page, to that depth.
//
// Package tasks runs crawls on it; other programs want Crawls and Progress.
package frontier

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/tasks/warc"
)

// life is how long a crawl is known after its last job. That covers a crawl which is
// run once a month, whose pages the next run asks for only if they have changed.
const life = 90 * 24 * time.Hour

// patience is how long a run waits for jobs of which none takes a URL: they may be gone,
// deleted by hand, or archived when their worker died. It is longer than the longest of
// asynq's own pauses between two attempts, of which the last of 25 takes four days.
const patience = 7 * 24 * time.Hour

// State is what has become of a URL. A state is one letter, for Redis keeps one for
// every URL of a run.
type State string

// The states. A URL that is Waiting or Failed may still be fetched; of the others
// none is fetched again in the same run.
const (
	Waiting    State = "w"
	Fetched    State = "d"
	Unchanged  State = "u" // since the last run
	Redirected State = "r"
	Missing    State = "m" // a 4xx that stays one
	Disallowed State = "x" // by robots.txt
	Failed     State = "f" // its job is archived or dropped
	// Beyond is no state of a URL: it counts those that were found when a run had as
	// many as it may have, each time that they were.
	Beyond State = "b"
)

// Frontier is the frontier of all crawls of a scope. It is safe for concurrent
// use, by any number of processes. Its methods take one round trip each, if they do
// not say another number. Their errors are Redis's: what was done then is open, and
// to repeat the call is safe.
type Frontier struct {
	rdb    redis.UniversalClient
	prefix string
	// How many URLs a run may find, in all and on a host.
	most, mostOfHost int
}

// New returns the frontier in a Redis. An empty scope means "default". Nothing is
// asked of Redis yet.
func New(rdb redis.UniversalClient, scope string) *Frontier {
	if scope == "" {
		scope = "default"
	}
	return &Frontier{rdb, lua.Prefix(scope), math.MaxInt32, math.MaxInt32}
}

// Bounded is the frontier with bounds for what a run may find: so many URLs, and so many
// of one host. What is found beyond is only counted. URLs of a Seed are above that.
func (f *Frontier) Bounded(urls, ofHost int) *Frontier {
	bounded := *f
	bounded.most, bounded.mostOfHost = urls, ofHost
	return &bounded
}

// Run is one run of a crawl. A crawl has one at a time: when the next begins, what
// was found in the one before is dropped, but not its pages.
type Run struct {
	Crawl string
	// Name orders the runs of a crawl: the later has the larger one.
	Name string
}

// Link is a URL, and how many links further the crawl may go from there. The URL
// must be in the one form that the caller has for it: each text is a URL of its own
// here.
type Link struct {
	URL   string
	Depth int
}

// Claim is a job's wish to fetch a URL.
type Claim struct {
	Run
	Link
	// Job is the job's name, of its queue too: the URL stays that job's until Done,
	// and the same job may take it as often as it runs.
	Job string
	// Seed is whether somebody enqueued the job, and no other job of the crawl.
	// Then it joins the run in progress, or begins its own, if that is a later
	// one, when the other is over. Anew has a later one begin at once.
	Seed, Anew bool
}

// The answers to a claim. Only after Take may the job go on to Found and Done for
// the URL itself; after Done and Other it may still have found a shorter way to it.
const (
	Take  = "take"  // the job may fetch the URL
	Done  = "done"  // the URL has been fetched in this run
	Other = "other" // another job has it
	Old   = "old"   // the run is over
	Full  = "full"  // the URL is new, and the run has as many as it may have
)

// Claim has a job take its URL. It returns the run that the job belongs to, the
// answer, and the largest depth at which the URL was found so far, the claim's
// included unless the answer is Done. After Old the depth says nothing, and the run
// is the one in progress.
//
// A run is over once another has begun. That does the job of a Seed whose run has a
// larger name than the one in progress, if no URL of that is Waiting, or none was taken
// for a week, or if it is to begin Anew. Any other Seed joins, so one that was enqueued long ago joins what has
// begun since.
func (f *Frontier) Claim(ctx context.Context, c Claim) (run Run, answer string, depth int, err error) {
	kind := ""
	switch {
	case c.Anew:
		kind = "anew"
	case c.Seed:
		kind = "seed"
	}
	reply, err := lua.CrawlClaim.Run(ctx, f.rdb, f.keys(),
		c.Crawl, c.Name, kind, Digest(c.URL), Host(c.URL), c.Depth, c.Job, life.Milliseconds(), patience.Milliseconds(), f.most, f.mostOfHost).Slice()
	if err != nil {
		return run, "", 0, fmt.Errorf("crawl %s: %w", c.Crawl, err)
	}
	name, _ := reply[0].(string)
	answer, _ = reply[1].(string)
	n, _ := reply[2].(int64)
	return Run{c.Crawl, name}, answer, int(n), nil
}

// Find is a URL that was found, and the state that it has if it is new. Three are for
// finds alone: Beyond has a new one counted and not noted, Look has nothing noted, and
// Followed says that the links of a fetched page have been followed to the depth.
type Find struct {
	Link
	State State
}

// States of a Find.
const (
	Look     State = "?"
	Followed State = "="
)

// Verdict is what a run says of a URL that was found.
type Verdict byte

// The verdicts.
const (
	Unseen Verdict = 'n' // it is new
	NoRoom Verdict = 'b' // it is new, and the run has as many as it may have
	Seen   Verdict = 'k' // it is known, with that depth or a larger one
	Deeper Verdict = 'd' // it is known with a smaller depth
)

// Found notes URLs, and returns what was known of each; of those that are known it notes
// a larger depth. It is for after the jobs of new ones were enqueued: a job that is
// enqueued twice is refused, a URL that is noted and has no job would never be fetched.
// Those that have been fetched by now with a smaller depth, or redirected, are Deeper: they
// are Followed once their links are, and a worker that dies before it does that again.
// Where the run is over it notes and returns nothing: what that leads to is fetched no more.
func (f *Frontier) Found(ctx context.Context, run Run, found []Find) ([]Verdict, error) {
	if len(found) == 0 {
		return nil, nil
	}
	args := []any{run.Crawl, run.Name, life.Milliseconds(), f.most, f.mostOfHost}
	for _, l := range found {
		args = append(args, Digest(l.URL), Host(l.URL), l.Depth, string(l.State))
	}
	reply, err := lua.CrawlFound.Run(ctx, f.rdb, f.keys(), args...).Text()
	if err != nil {
		return nil, fmt.Errorf("crawl %s: %w", run.Crawl, err)
	}
	return []Verdict(reply), nil
}

// Done notes what has become of a URL whose links were followed to the link's
// depth, and keeps the page for the next run unless it is nil. If the URL was
// found at a larger depth meanwhile, it notes nothing and returns that: the caller
// follows the links to there and tries again. A URL that has Failed has no links to
// follow, and is noted whatever its depth. It returns -1 where the run is over.
func (f *Frontier) Done(ctx context.Context, run Run, l Link, state State, page *Page) (depth int, err error) {
	kept := []byte{}
	if page != nil {
		if kept, err = page.encode(); err != nil {
			return 0, err
		}
	}
	depth, err = lua.CrawlDone.Run(ctx, f.rdb, f.keys(),
		run.Crawl, run.Name, life.Milliseconds(), Digest(l.URL), Host(l.URL), string(state), l.Depth, kept).Int()
	if err != nil {
		return 0, fmt.Errorf("crawl %s: %w", run.Crawl, err)
	}
	return depth, nil
}

// keys are those of every script: the prefix, from which it builds the rest.
func (f *Frontier) keys() []string { return []string{f.prefix} }

func (f *Frontier) key(name, of string) string { return f.prefix + name + ":" + of }

// Digest is the name of a URL among those of a crawl: half of its SHA-256, as 16
// bytes and not as text. Redis keeps millions of them, and URLs have any length.
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

// Page is what is kept of a page beyond its job: what a recrawl asks with, and
// where the page leads to, for a run in which it has not changed or a shorter
// way to it is found. Its text is not kept. It outlives its run, and is replaced by
// what a later run finds. When no run has met it for 90 to 180 days it goes, with the
// first that begins then. Of one that would take more than maxKept bytes no links are kept,
// and nothing to ask with: the next run fetches it anew.
type Page struct {
	Run      string   `json:"run"` // that fetched it
	ETag     string   `json:"etag,omitempty"`
	Modified string   `json:"modified,omitempty"` // its Last-Modified
	Links    []string `json:"links,omitempty"`
	Sitemaps []string `json:"sitemaps,omitempty"` // that its origin's robots.txt names
	Nested   []string `json:"nested,omitempty"`   // sitemaps that it lists, being one itself
	Level    int      `json:"level,omitempty"`    // how many sitemaps list one another up to it, without itself
	To       string   `json:"to,omitempty"`       // where it redirects
	// Archived is where the archive has the page's text, if it has.
	Archived warc.Capture `json:"archived,omitzero"`
}

// maxKept is how many bytes Redis keeps of a page, which has all of them for months: room
// for ten thousand links of any length that people give them.
const maxKept = 1 << 20

// encode packs the page: links repeat themselves, and gzip makes a fraction of them.
func (p *Page) encode() ([]byte, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	kept, err := pack(text)
	if len(kept) > maxKept {
		return (&Page{Run: p.Run, Level: p.Level, To: p.To, Archived: p.Archived}).encode()
	}
	return kept, err
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

// Page is what was kept of a page of the crawl in any of its runs, and nil for
// nothing. What cannot be read any more is an error.
func (f *Frontier) Page(ctx context.Context, crawl, url string) (*Page, error) {
	pipe := f.rdb.Pipeline()
	now := pipe.HGet(ctx, f.key("crawl_pages", crawl), Digest(url))
	before := pipe.HGet(ctx, f.key("crawl_before", crawl), Digest(url))
	_, err := pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) { // which may hide what the other failed with
		err = before.Err()
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("crawl %s: %w", crawl, err)
	}
	kept := cmp.Or(now.Val(), before.Val())
	if kept == "" {
		return nil, nil
	}
	// That is nothing an answer of the site could cause, so it is not passed over.
	var p Page
	text, err := unpack([]byte(kept))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("crawl %s: what is kept of %s: %w", crawl, url, err)
	}
	return &p, nil
}

// Counts is how many URLs a crawl has found, and what has become of them. Found is
// the sum of all others but Beyond. Redis counts as URLs change their state, so what it costs
// to read them grows with the hosts of a crawl and not with its URLs.
type Counts struct {
	Found      int `json:"found"`
	Fetched    int `json:"fetched"`
	Unchanged  int `json:"unchanged"`
	Redirected int `json:"redirected"`
	Missing    int `json:"missing"`
	Disallowed int `json:"disallowed"`
	Failed     int `json:"failed"`
	Waiting    int `json:"waiting"`
	// Beyond is how often URLs were found that the run had no room for. They are not
	// among Found.
	Beyond int `json:"beyond"`
}

// Progress is how far a run of a crawl has come. A run in which nothing waits is
// complete, until a job of it that failed is run again.
type Progress struct {
	Name  string    `json:"name"`
	Run   string    `json:"run"`
	Began time.Time `json:"began"` // by Redis's clock
	// Ended is when the last URL was taken, if nothing waits any more.
	Ended time.Time `json:"ended,omitzero"`
	Counts
	Hosts []HostCounts `json:"hosts"` // of which there are URLs, by name
}

// HostCounts are the counts of one host.
type HostCounts struct {
	Host string `json:"host"`
	Counts
}

// Crawls are the names of the crawls, that first of which a URL was taken last. Those
// of which none was for 90 days are forgotten.
func (f *Frontier) Crawls(ctx context.Context) ([]string, error) {
	return f.rdb.ZRevRange(ctx, f.prefix+"crawls", 0, -1).Result()
}

// Progress is that of a crawl's last run; ok is false if there is no such crawl. It
// takes two round trips, and one where nothing waits, so between them a run can end that the counts are of: then
// they are all 0.
func (f *Frontier) Progress(ctx context.Context, crawl string) (p Progress, ok bool, err error) {
	about, err := f.rdb.HGetAll(ctx, f.key("crawl", crawl)).Result()
	if err != nil || len(about) == 0 {
		return p, false, err
	}
	began, _ := strconv.ParseInt(about["began"], 10, 64)
	p = Progress{Name: crawl, Run: about["run"], Began: time.UnixMicro(began)}
	counts, err := f.rdb.HGetAll(ctx, f.key("crawl_hosts", crawl+"|"+p.Run)).Result()
	if err != nil {
		return p, false, err
	}
	// A field is host|state, and that of all hosts together has an empty host: no host
	// has a | in it, and none is empty.
	hosts := map[string]*Counts{}
	for field, text := range counts {
		host, state, _ := strings.Cut(field, "|")
		n, err := strconv.Atoi(text)
		if err != nil {
			return p, false, fmt.Errorf("crawl %s: count %q of %q: want a number", crawl, text, field)
		}
		if hosts[host] == nil {
			hosts[host] = &Counts{}
		}
		hosts[host].add(State(state), n)
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		if host == "" {
			p.Counts = *hosts[host]
			continue
		}
		p.Hosts = append(p.Hosts, HostCounts{host, *hosts[host]})
	}
	if p.Found == 0 || p.Waiting > 0 {
		return p, true, nil
	}
	last, err := f.rdb.ZScore(ctx, f.prefix+"crawls", crawl).Result()
	if err == nil {
		p.Ended = time.UnixMicro(int64(last))
	} else if !errors.Is(err, redis.Nil) {
		return p, false, err
	}
	return p, true, nil
}

// add counts n URLs of a state. One that it does not know, of a later version, is
// among Found alone.
func (c *Counts) add(state State, n int) {
	if state == Beyond {
		c.Beyond += n
		return
	}
	c.Found += n
	of := map[State]*int{
		Waiting: &c.Waiting, Fetched: &c.Fetched, Unchanged: &c.Unchanged, Redirected: &c.Redirected,
		Missing: &c.Missing, Disallowed: &c.Disallowed, Failed: &c.Failed,
	}[state]
	if of != nil {
		*of += n
	}
}
