package frontier

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/tasks/warc"
)

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
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("crawl %s: %w", crawl, err)
	}
	kept, err := now.Bytes()
	if errors.Is(err, redis.Nil) {
		kept, err = before.Bytes()
	}
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("crawl %s: %w", crawl, err)
	}
	// That is nothing an answer of the site could cause, so it is not passed over.
	var p Page
	text, err := unpack(kept)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("crawl %s: what is kept of %s: %w", crawl, url, err)
	}
	return &p, nil
}

const (
	// robotsFresh is how long a robots.txt counts, as RFC 9309 has it (2.4), and
	// robotsLife how long it is kept for when a newer one cannot be had.
	robotsFresh = 24 * time.Hour
	robotsLife  = 30 * 24 * time.Hour
)

// Robots is an answer to the request for a robots.txt: package robots says what it
// means. All crawls of a scope share it.
type Robots struct {
	Status int
	Text   []byte // as it was sent, up to what the caller kept
	// Fresh is whether it need not be asked for again.
	Fresh bool
}

// Robots is what an origin, scheme, host and port, answered last; ok is false if
// nothing is known. Its age is by the clocks of the two processes, which matters
// little within a day.
func (f *Frontier) Robots(ctx context.Context, origin string) (r Robots, ok bool, err error) {
	values, err := f.rdb.HGetAll(ctx, f.key("robots", origin)).Result()
	if err != nil || len(values) == 0 {
		return r, false, wrapRobots(origin, err)
	}
	if r.Text, err = unpack([]byte(values["packed"])); err != nil {
		return Robots{}, false, wrapRobots(origin, err)
	}
	r.Status, _ = strconv.Atoi(values["status"])
	at, _ := strconv.ParseInt(values["fetched"], 10, 64)
	r.Fresh = time.Since(time.UnixMilli(at)) < robotsFresh
	return r, true, nil
}

// KeepRobots keeps an origin's answer of that age, and ends the wait for it. An
// older age than it has makes it fresh for a shorter time.
func (f *Frontier) KeepRobots(ctx context.Context, origin string, status int, text []byte, age time.Duration) error {
	// Packed: a site can have more origins than there is memory for as many texts, which
	// come packed, too.
	packed, err := pack(text)
	if err != nil {
		return wrapRobots(origin, err)
	}
	key := f.key("robots", origin)
	pipe := f.rdb.TxPipeline()
	pipe.HSet(ctx, key, "status", status, "packed", packed, "fetched", time.Now().Add(-age).UnixMilli())
	pipe.PExpire(ctx, key, robotsLife)
	pipe.Del(ctx, f.key("robots_busy", origin))
	_, err = pipe.Exec(ctx)
	return wrapRobots(origin, err)
}

// Asked is what a job is to do about a robots.txt that is not known.
type Asked struct {
	// Ask is whether the job is to ask for it.
	Ask bool
	// Wait is how long to wait, if not: for the job that asks, or after one that
	// got no answer.
	Wait   time.Duration
	Failed bool // whether it is the latter
}

// What a key says that keeps others from asking, for as long as it lives.
const (
	asking = "asking"
	failed = "failed"
)

// AskRobots says who asks for an origin's robots.txt: one job at a time. Who does
// has the time given for it; after that the next may ask, for it may have died. It
// takes one round trip for that job and two for the others.
func (f *Frontier) AskRobots(ctx context.Context, origin string, within time.Duration) (a Asked, err error) {
	key := f.key("robots_busy", origin)
	if a.Ask, err = f.rdb.SetNX(ctx, key, asking, within).Result(); err != nil || a.Ask {
		return a, wrapRobots(origin, err)
	}
	pipe := f.rdb.Pipeline()
	state, wait := pipe.Get(ctx, key), pipe.PTTL(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return a, wrapRobots(origin, err)
	}
	return Asked{Wait: max(0, wait.Val()), Failed: state.Val() == failed}, nil
}

// AwaitRobots has all wait for so long for a job that asks elsewhere, where a
// redirect leads. That job needs no answer of AskRobots.
func (f *Frontier) AwaitRobots(ctx context.Context, origin string, wait time.Duration) error {
	return wrapRobots(origin, f.rdb.Set(ctx, f.key("robots_busy", origin), asking, wait).Err())
}

// NoRobots has nobody ask again for so long after there was no answer: without one a
// thousand pages of a dead host would each wait for it.
func (f *Frontier) NoRobots(ctx context.Context, origin string, wait time.Duration) error {
	return wrapRobots(origin, f.rdb.Set(ctx, f.key("robots_busy", origin), failed, wait).Err())
}

// wrapRobots says which origin an error is about; nil stays nil.
func wrapRobots(origin string, err error) error {
	if err != nil {
		return fmt.Errorf("robots.txt of %s: %w", origin, err)
	}
	return nil
}
