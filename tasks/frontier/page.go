package frontier

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

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
