package tasks

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/hibiken/asynq"
	"golang.org/x/net/publicsuffix"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/tasks/internal/links"
)

// TypeCrawlFetch names the task that fetches one page of a crawl and enqueues jobs for the page's
// links.
const TypeCrawlFetch = "crawl:fetch"

// MaxDepth is the maximum of CrawlFetch.Depth.
const MaxDepth = 1000

// maxStart is the maximum of CrawlFetch.Start. In Lua, larger integers are not exact.
const maxStart = 1 << 53

// The special values of CrawlFetch.Allow.
const (
	SameHost = "same-host" // the host of URL
	SameSite = "same-site" // the registered domain of URL's host, and its subdomains
)

// CrawlFetch is the payload of a crawl:fetch task. Only Crawl and URL are required:
//
//	{"crawl": "docs", "url": "https://example.com/", "depth": 3,
//	 "allow": ["same-host", "*.example.org"]}
type CrawlFetch struct {
	// Crawl is the crawl's name.
	Crawl string `json:"crawl" want:"a name such as \"docs\""`
	// URL is an absolute http or https URL without user, password and secrets.
	URL string `json:"url" want:"a text such as \"https://example.com/\""`
	// Depth is the maximum number of links between URL and a page that the crawl fetches, from 0 to
	// MaxDepth. Redirects do not count as links. The URLs of a sitemap count as links of the page
	// that led to the sitemap.
	Depth int `json:"depth,omitempty" want:"a number of links such as 3"`
	// Allow lists the hosts that the crawl may visit in addition to URL itself: SameHost, SameSite,
	// "example.com" for one host, "*.example.com" for its subdomains. An empty list means SameHost.
	Allow []string `json:"allow,omitempty" want:"a list such as [\"same-host\", \"*.example.com\"]"`
	// Start is the time in µs since 1970 at which a user enqueued the job. Give the same Start to
	// all jobs that you enqueue together. A user's job starts a new crawl if the present crawl has
	// ended and has an earlier Start. Any other job of a user joins the present crawl. Jobs that the
	// crawl enqueues have the crawl's Start. The zero value means the time at which the job runs.
	Start int64 `json:"start,omitempty" want:"a moment in µs since 1970"`
	// Sitemap reports whether URL is a sitemap.
	Sitemap bool `json:"sitemap,omitempty" want:"true or false"`
	// From is the URL of the page that led to URL. It is empty in jobs that a user enqueues.
	From string `json:"from,omitempty" want:"a URL"`
	// Hops is the number of redirects and sitemap indexes that have led to URL, up to MaxRedirects.
	Hops int `json:"hops,omitempty" want:"a number of redirects"`
}

// NewCrawlFetch returns a task that fetches the page. If Start is not 0, the task's ID is
// CrawlFetch.ID, so asynq rejects a second job for the page with ErrTaskIDConflict. NewCrawlFetch
// returns the error of Validate.
func NewCrawlFetch(c CrawlFetch, opts ...asynq.Option) (*asynq.Task, error) {
	if c.Start != 0 {
		opts = append([]asynq.Option{asynq.TaskID(c.ID())}, opts...)
	}
	return newTask(TypeCrawlFetch, c, opts)
}

// ID returns the task ID for Crawl, Start and URL. It is the same for all spellings of URL.
func (c CrawlFetch) ID() string {
	url, err := links.Canonical("", c.URL)
	if err != nil {
		url = c.URL
	}
	return c.id(url)
}

// id returns the ID for the canonical form of URL.
func (c CrawlFetch) id(canonical string) string {
	sum := sha256.Sum256([]byte(canonical))
	return fmt.Sprintf("crawl/%s/%d/%x", c.Crawl, c.Start, sum[:16])
}

// UnmarshalJSON reads a payload strictly. It does not call Validate.
func (c *CrawlFetch) UnmarshalJSON(payload []byte) error {
	return strictjson.Decode("payload", payload, c)
}

var (
	crawlName   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`) // for Redis keys, task IDs and file names
	hostPattern = regexp.MustCompile(`^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)
)

// Validate returns an error if a field is invalid. The error contains no password and no API key.
func (c CrawlFetch) Validate() error {
	err := validateURL(c.URL)
	if err == nil {
		if _, err = links.Canonical("", c.URL); err != nil {
			err = fmt.Errorf("url: %w", err)
		}
	}
	switch {
	case !crawlName.MatchString(c.Crawl):
		return fmt.Errorf("crawl %q: want the crawl's name, 1 to 100 letters, digits, or _ . -", c.Crawl)
	case c.Start < 0 || c.Start > maxStart:
		return fmt.Errorf("start %d: want a time in µs since 1970, up to %d", c.Start, int64(maxStart))
	case reference.MatchString(c.URL):
		return errors.New("url: want it without a reference to a secret: crawls use no secrets")
	case err != nil:
		return err
	case c.Depth < 0 || c.Depth > MaxDepth:
		return fmt.Errorf("depth %d: want from 0 to %d links", c.Depth, MaxDepth)
	case c.Hops < 0 || c.Hops > MaxRedirects:
		return fmt.Errorf("hops %d: want from 0 to %d redirects", c.Hops, MaxRedirects)
	}
	for _, host := range c.Allow {
		if err := ValidateAllow(host); err != nil {
			return fmt.Errorf("allow: %w", err)
		}
	}
	return nil
}

// ValidateAllow returns an error if an entry of CrawlFetch.Allow is invalid. Valid are SameHost,
// SameSite, a host's name in upper or lower case, with or without "*." before it, and an IP
// address.
func ValidateAllow(host string) error {
	if host != SameHost && host != SameSite && !hostPattern.MatchString(strings.ToLower(host)) && net.ParseIP(host) == nil {
		return fmt.Errorf("%q: want %s, %s, a host such as example.com, *.example.com for its subdomains, or an IP address", host, SameHost, SameSite)
	}
	return nil
}

// Hosts returns the hosts of Allow with SameHost and SameSite resolved: sorted, in lower case, and
// without duplicates. If the host of URL is an IP address or a public suffix, SameSite means that
// host alone.
func (c CrawlFetch) Hosts() []string {
	allow := c.Allow
	if len(allow) == 0 {
		allow = []string{SameHost}
	}
	var hosts []string
	for _, a := range allow {
		switch a {
		case SameHost:
			hosts = append(hosts, canonical.HostOf(c.URL))
		case SameSite:
			site := canonical.HostOf(c.URL)
			if domain, err := publicsuffix.EffectiveTLDPlusOne(site); err == nil && net.ParseIP(site) == nil {
				site = domain
				hosts = append(hosts, "*."+site)
			}
			hosts = append(hosts, site)
		default:
			hosts = append(hosts, strings.ToLower(a))
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
