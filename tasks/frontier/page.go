package frontier

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// Page is what is kept of a page beyond its job: what a recrawl asks with, and
// where the page leads to, for a run in which it has not changed or a shorter
// way to it is found. Its text is not kept. It outlives its run, and is replaced by
// what a later run finds. When no run has met it for 90 to 180 days it goes, with the
// first that begins then.
type Page struct {
	Run      string   `json:"run"` // that fetched it
	ETag     string   `json:"etag,omitempty"`
	Modified string   `json:"modified,omitempty"` // its Last-Modified
	Links    []string `json:"links,omitempty"`
	Sitemaps []string `json:"sitemaps,omitempty"` // that its origin's robots.txt names
	Nested   []string `json:"nested,omitempty"`   // sitemaps that it lists, being one itself
	Level    int      `json:"level,omitempty"`    // how many sitemaps list one another up to it, without itself
	To       string   `json:"to,omitempty"`       // where it redirects
}

// encode packs the page: links repeat themselves, and gzip makes a fraction of them.
func (p *Page) encode() ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(z).Encode(p), z.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
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
	z, err := gzip.NewReader(bytes.NewReader(kept))
	if err != nil {
		return nil, fmt.Errorf("crawl %s: what is kept of %s: %w", crawl, url, err)
	}
	var p Page
	if err := json.NewDecoder(z).Decode(&p); err != nil {
		return nil, fmt.Errorf("crawl %s: what is kept of %s: %w", crawl, url, err)
	}
	return &p, nil
}
