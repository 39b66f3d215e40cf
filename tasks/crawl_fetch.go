package tasks

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/hibiken/asynq"
	"golang.org/x/net/publicsuffix"

	"github.com/headgate/headgate/tasks/frontier"
	"github.com/headgate/headgate/tasks/links"
)

// TypeCrawlFetch names the task that fetches one page of a crawl, and goes on
// from there.
const TypeCrawlFetch = "crawl:fetch"

// MaxDepth is how many links a crawl may go from where it starts. Longer ways are
// those of calendars and the like, which have no end.
const MaxDepth = 1000

// MaxNested is how many sitemaps may list one another up to the one that is read:
// sitemaps.org has an index and the sitemaps that it lists.
const MaxNested = 1

// The words of CrawlFetch.Allow.
const (
	SameHost = "same-host" // URL's host alone
	SameSite = "same-site" // its registered domain and all below it, by the public suffix list
)

// CrawlFetch is the payload of a crawl:fetch task. Only Crawl and URL are
// required:
//
//	{"crawl": "docs", "url": "https://example.com/", "depth": 3,
//	 "allow": ["same-host", "*.example.org"]}
type CrawlFetch struct {
	// Crawl is the crawl's name. A URL is fetched once in each run of a crawl.
	Crawl string `json:"crawl"`
	// URL is absolute, http or https, without a user and password or a secret.
	// The crawl knows it in its canonical form: see links.Canonical.
	URL string `json:"url"`
	// Depth is how many links further the crawl may go from here, up to MaxDepth.
	// With the zero value it fetches the page alone, where it redirects to, too.
	Depth int `json:"depth,omitempty"`
	// Allow lists the hosts that the crawl may go to: SameHost and SameSite are
	// URL's, "example.com" is that host, "*.example.com" all below it. The zero
	// value means SameHost. URL itself is fetched in any case.
	Allow []string `json:"allow,omitempty"`
	// Run is the crawl's run: texts of which the later is the larger, such as
	// moments. A job of a later run joins the one in progress, or begins its own
	// if that is over. The zero value means a run of its own.
	Run string `json:"run,omitempty"`
	// Anew has the job begin its run although another is in progress, whose jobs
	// then fetch nothing more. It wants a Run: without one each attempt of the job
	// would begin another.
	Anew bool `json:"anew,omitempty"`
	// Sitemap is whether URL is a sitemap.
	Sitemap bool `json:"sitemap,omitempty"`
	// Nested is how many sitemaps list one another up to this one, up to MaxNested.
	Nested int `json:"nested,omitempty"`
	// From is the URL that led to this one: the crawl itself enqueued the job,
	// as a part of Run.
	From string `json:"from,omitempty"`
	// Hops is how many redirects have led to URL, up to MaxRedirects.
	Hops int `json:"hops,omitempty"`
	// Robots is the origin whose robots.txt URL is, where a redirect led to it.
	Robots string `json:"robots,omitempty"`
}

// NewCrawlFetch is a task that fetches the page. A page has the ID of CrawlFetch.ID,
// so that asynq refuses it with ErrTaskIDConflict while it has another of the same
// run; an asynq.TaskID among opts wins over it. The error says which field is wrong,
// its value and what would be right.
func NewCrawlFetch(c CrawlFetch, opts ...asynq.Option) (*asynq.Task, error) {
	if c.Robots == "" {
		opts = append([]asynq.Option{asynq.TaskID(c.ID())}, opts...)
	}
	return newTask(TypeCrawlFetch, c, opts)
}

// ID is the same for all tasks of a run that fetch the same URL, in whatever form it
// is written.
func (c CrawlFetch) ID() string {
	of := c.URL
	if canonical, err := links.Canonical("", c.URL); err == nil {
		of = canonical
	}
	return "crawl/" + c.Crawl + "/" + c.Run + "/" + hex.EncodeToString([]byte(frontier.Digest(of)))
}

// UnmarshalJSON reads a payload strictly. It does not Validate it.
func (c *CrawlFetch) UnmarshalJSON(payload []byte) error {
	var read CrawlFetch
	err := decodeStrict(payload,
		field{"crawl", &read.Crawl, `a name such as "docs"`},
		field{"url", &read.URL, `a text such as "https://example.com/"`},
		field{"depth", &read.Depth, `a number of links such as 3`},
		field{"allow", &read.Allow, `a list such as ["same-host", "*.example.com"]`},
		field{"run", &read.Run, `a text such as "2026-01-02"`},
		field{"anew", &read.Anew, `true or false`},
		field{"sitemap", &read.Sitemap, `true or false`},
		field{"nested", &read.Nested, `a number of sitemaps`},
		field{"from", &read.From, `a URL`},
		field{"hops", &read.Hops, `a number of redirects`},
		field{"robots", &read.Robots, `an origin such as "https://example.com"`},
	)
	if err == nil {
		*c = read
	}
	return err
}

// Names of crawls and runs are parts of Redis keys, in which | and line breaks mean
// something, and of IDs and file names.
var (
	crawlName   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)
	crawlRun    = regexp.MustCompile(`^[A-Za-z0-9_.:-]{0,100}$`)
	hostPattern = regexp.MustCompile(`^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)
)

// Validate reports the first thing that is wrong with the page: the field, its
// value and what would be right.
func (c CrawlFetch) Validate() error {
	if !crawlName.MatchString(c.Crawl) {
		return fmt.Errorf("crawl %q: want the crawl's name, 1 to 100 letters, digits, or _ . -", c.Crawl)
	}
	if !crawlRun.MatchString(c.Run) {
		return fmt.Errorf("run %q: want at most 100 letters, digits, or _ . : -", c.Run)
	}
	if c.Anew && c.Run == "" {
		return errors.New("anew: want a run, too: without one each attempt of the job would begin another")
	}
	if err := validateURL(c.URL); err != nil {
		return err
	}
	if reference.MatchString(c.URL) {
		return errors.New("url: want it without a secret: a crawl gives none out")
	}
	if _, err := links.Canonical("", c.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if c.Depth < 0 || c.Depth > MaxDepth {
		return fmt.Errorf("depth %d: want from 0 to %d links", c.Depth, MaxDepth)
	}
	if c.Hops < 0 || c.Hops > MaxRedirects {
		return fmt.Errorf("hops %d: want from 0 to %d redirects", c.Hops, MaxRedirects)
	}
	if c.Nested < 0 || c.Nested > MaxNested {
		return fmt.Errorf("nested %d: want from 0 to %d sitemaps", c.Nested, MaxNested)
	}
	for _, host := range c.Allow {
		if err := ValidateAllow(host); err != nil {
			return fmt.Errorf("allow: %w", err)
		}
	}
	return nil
}

// ValidateAllow reports what is wrong with an entry of CrawlFetch.Allow: it is one of
// the two words, a host's name in whatever case, or an IP address.
func ValidateAllow(host string) error {
	if host != SameHost && host != SameSite && !hostPattern.MatchString(strings.ToLower(host)) && net.ParseIP(host) == nil {
		return fmt.Errorf("%q: want %s, %s, a host such as example.com, or *.example.com for all below it", host, SameHost, SameSite)
	}
	return nil
}

// Hosts are those that Allow means, without its words: sorted, in lower case, each
// once. For an address, and for a host that is a public suffix itself, SameSite is
// the host alone.
func (c CrawlFetch) Hosts() []string {
	allow := c.Allow
	if len(allow) == 0 {
		allow = []string{SameHost}
	}
	var hosts []string
	for _, a := range allow {
		switch a {
		case SameHost:
			hosts = append(hosts, frontier.Host(c.URL))
		case SameSite:
			site := frontier.Host(c.URL)
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

func (c CrawlFetch) link() frontier.Link { return frontier.Link{URL: c.URL, Depth: c.Depth} }

// origin is what a robots.txt is for: scheme, host and port. It is empty for what is
// no URL.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
