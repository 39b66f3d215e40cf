package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/hibiken/asynq"
	"golang.org/x/net/publicsuffix"

	"github.com/headgate/headgate/tasks/frontier"
	"github.com/headgate/headgate/tasks/internal/links"
	"github.com/headgate/headgate/tasks/internal/robots"
)

// TypeCrawlFetch names the task that fetches one page of a crawl, and goes on
// from there.
const TypeCrawlFetch = "crawl:fetch"

// MaxDepth is how many links a crawl may go from where it starts. Longer ways are
// those of calendars and the like, which have no end.
const MaxDepth = 1000

// maxStart is the largest whole number that Redis's scripts count with.
const maxStart = 1 << 53

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
	// Crawl is the crawl's name. A crawl fetches a URL once.
	Crawl string `json:"crawl" want:"a name such as \"docs\""`
	// URL is absolute, http or https, without a user and password or a secret.
	// The crawl knows it in its canonical form: see links.Canonical.
	URL string `json:"url" want:"a text such as \"https://example.com/\""`
	// Depth is how many links further the crawl may go from here, up to MaxDepth.
	// With the zero value it fetches the page alone, where it redirects to, too. The URLs of a
	// sitemap count as links of the page that led to the sitemap.
	Depth int `json:"depth,omitempty" want:"a number of links such as 3"`
	// Allow lists the hosts that the crawl may go to: SameHost and SameSite are
	// URL's, "example.com" is that host, "*.example.com" all below it. The zero
	// value means SameHost. URL itself is fetched in any case.
	Allow []string `json:"allow,omitempty" want:"a list such as [\"same-host\", \"*.example.com\"]"`
	// Start is the moment in µs at which the job was enqueued; in jobs that the crawl itself
	// enqueues, that of the seed which began the crawl. Jobs with the same Start belong to one
	// crawl, so URLs that are enqueued together have one. A job with a later Start joins the
	// crawl in progress, or begins it again if nothing of it waits. The zero value means the
	// moment at which the job runs.
	Start int64 `json:"start,omitempty" want:"a moment in µs since 1970"`
	// Sitemap is whether URL is a sitemap.
	Sitemap bool `json:"sitemap,omitempty" want:"true or false"`
	// Nested is how many sitemaps list one another up to this one, up to MaxNested.
	Nested int `json:"nested,omitempty" want:"a number of sitemaps"`
	// From is the URL that led to this one: the crawl itself enqueued the job.
	From string `json:"from,omitempty" want:"a URL"`
	// Hops is how many redirects have led to URL, up to MaxRedirects.
	Hops int `json:"hops,omitempty" want:"a number of redirects"`
	// Robots is the origin whose robots.txt URL is, where a redirect led to it.
	Robots string `json:"robots,omitempty" want:"an origin such as \"https://example.com\""`
}

// NewCrawlFetch is a task that fetches the page. A page with a Start has the ID of
// CrawlFetch.ID, so asynq refuses a second job for it with ErrTaskIDConflict; an
// asynq.TaskID among opts wins over that ID. The error says which field is wrong,
// its value and what would be right.
func NewCrawlFetch(c CrawlFetch, opts ...asynq.Option) (*asynq.Task, error) {
	if c.Robots == "" && c.Start != 0 {
		opts = append([]asynq.Option{asynq.TaskID(c.ID())}, opts...)
	}
	return newTask(TypeCrawlFetch, c, opts)
}

// ID is the same for all tasks of a crawl that fetch the same URL, in whatever form it
// is written.
func (c CrawlFetch) ID() string {
	of := c.URL
	if canonical, err := links.Canonical("", c.URL); err == nil {
		of = canonical
	}
	return fmt.Sprintf("crawl/%s/%d/%x", c.Crawl, c.Start, frontier.Digest(of))
}

// UnmarshalJSON reads a payload strictly. It does not Validate it.
func (c *CrawlFetch) UnmarshalJSON(payload []byte) error { return decodeStrict(payload, c) }

// Names of crawls are parts of Redis keys, of IDs and of file names.
var (
	crawlName   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}$`)
	hostPattern = regexp.MustCompile(`^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)
)

// Validate reports the first thing that is wrong with the page: the field, its
// value and what would be right.
func (c CrawlFetch) Validate() error {
	if !crawlName.MatchString(c.Crawl) {
		return fmt.Errorf("crawl %q: want the crawl's name, 1 to 100 letters, digits, or _ . -", c.Crawl)
	}
	if c.Start < 0 || c.Start > maxStart {
		return fmt.Errorf("start %d: want a moment in µs since 1970, up to %d", c.Start, int64(maxStart))
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

// origin is what a robots.txt is for: scheme, host and port. It is empty for what is
// no URL.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// DefaultMaxPage is how many bytes of a page a crawl reads if the handler does
// not say.
const DefaultMaxPage = 10 << 20

// How many URLs a crawl may have, in all and on a host, if the handler does not say. A site can make up links faster than anybody can fetch them.
const (
	DefaultMaxPages     = 100_000
	DefaultMaxHostPages = 10_000
)

// CrawlHandler runs crawl:fetch tasks. HTTP, Frontier and Client are required;
// without them each job is archived. It is safe for concurrent use, but must not be
// copied, nor its fields changed, after its first task.
//
// A job makes at most one request, so one permit for its URL's host is enough.
// Where the origin's robots.txt is not known, that is what it asks for, and then
// it is put back. What it found becomes jobs of the crawl, redirects as well, so
// that each is fetched under the permits of its own host. What it did is kept as
// the task's result, a CrawlResult. What becomes of the job:
//
//   - The page was fetched, redirects, is not there (a 4xx), or robots.txt disallows
//     it: done, and counted as that.
//   - No answer, a broken one, none in time, a status that may pass, or no disk to
//     save to: retried.
//   - No robots.txt because of no answer, a 5xx or a 429: put back, with pauses that grow
//     from 30 s to an hour, and archived after 12 hours.
//   - A malformed payload, or an address that is not allowed: archived.
//
// A URL is fetched once in a crawl, unless a worker dies between the
// request and the note that it was made.
//
// Beside its request a job costs some six round trips to Redis, two for every 500
// links of the page, and one for each of them that is new: these are enqueued one
// after the other.
//
// For crawls to show which pages have failed, the server's ErrorHandler calls Failed. A job is
// put back by scheduler.RetryAfter: a server of package scheduler runs the crawl. With a Feedback
// around the handler the limits of a host hear of its answers and of its Crawl-delay.
type CrawlHandler struct {
	// HTTP makes the calls, to the addresses that it may call. Its secrets and its folder
	// are not used.
	HTTP *HTTPHandler
	// Frontier is what the crawls have found. All workers of a crawl must share it;
	// it need not be in the Redis of the queues.
	Frontier *frontier.Frontier
	// Client enqueues what is found, in the queue of the job that found it:
	// scheduler.Client or asynq.Client, for the same Redis as the server's.
	Client interface {
		EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error)
	}
	// Agent is the User-Agent. Its part before the slash is the crawler's name in robots.txt. The
	// zero value means `headgate`.
	Agent string `yaml:"agent"`
	// SaveDir is the folder that the bodies of pages are saved in, unless a page asks not to be
	// kept: a folder for each crawl, with files named by the body's SHA-256. It must exist. The
	// zero value means nothing is saved.
	SaveDir string `yaml:"save_dir"`
	// MaxPage is how many bytes of a page are read. Of a longer page the beginning is kept and its
	// links are followed. The zero value means tasks.DefaultMaxPage.
	MaxPage int64 `yaml:"max_page"`
	// MaxPages is how many URLs a crawl may have. URLs that robots.txt disallows do not count, and
	// seeds are fetched beyond the bounds. The zero value means tasks.DefaultMaxPages.
	MaxPages int `yaml:"max_pages"`
	// MaxHostPages is how many of them may be on one host. The zero value means
	// tasks.DefaultMaxHostPages.
	MaxHostPages int `yaml:"max_host_pages"`
	// Include says which links are followed: those whose canonical URLs match one of the regular
	// expressions. It does not apply to seeds and sitemaps. The zero value means all of the crawl's
	// hosts.
	Include []*regexp.Regexp `yaml:"include"`
	// Exclude says which links are not followed. The zero value means none.
	Exclude []*regexp.Regexp `yaml:"exclude"`
}

// CrawlResult is the result of a crawl:fetch task, in JSON. Like every result it is kept for as long as the task: see HTTPResult.
type CrawlResult struct {
	// Outcome is "fetched", "redirected", "missing" (also of a redirect that leads nowhere), "disallowed", "seen" if the crawl
	// has the URL already, "over" if the crawl has begun again, "beyond" if the crawl
	// has no room for the URL, and "robots" for a job that fetched a robots.txt.
	Outcome string `json:"outcome"`
	// Reason says more, in words.
	Reason string `json:"reason,omitempty"`
	// Status is the page's, and 0 where it was not asked for.
	Status int `json:"status,omitempty"`
	// Type is the Content-Type, Length how many bytes of the page were read, and
	// Truncated whether there were more.
	Type      string `json:"type,omitempty"`
	Length    int    `json:"length,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	// Links is how many URLs the page leads to, and New how many of them this job
	// was the first to find.
	Links int `json:"links,omitempty"`
	New   int `json:"new,omitempty"`
	// Beyond is how many links were left out because the page has more than are read, or
	// the crawl has as many URLs as it may have.
	Beyond int `json:"beyond,omitempty"`
	// Saved is the file with the body, below the handler's SaveDir.
	Saved string `json:"saved,omitempty"`
}

// crawlJob is one run of a job. Its steps are methods, which write what they find to
// result: claim first, then robotsFor, fetch and finish. One goroutine
// takes them.
type crawlJob struct {
	*CrawlHandler
	Frontier *frontier.Frontier // the handler's with its bounds

	page   CrawlFetch              // its URL in the canonical form
	crawl  frontier.Crawl          // the one that the job belongs to, after claim
	hosts  []string                // that the crawl may go to
	robots map[string]*robots.File // by origin; nil for one that is not known
	result CrawlResult
}

// leftOut says why the crawl does not go to a link, or nothing.
func (j *crawlJob) leftOut(to CrawlFetch) frontier.State {
	matches := func(pattern *regexp.Regexp) bool { return pattern.MatchString(to.URL) }
	included := len(j.Include) == 0 || slices.ContainsFunc(j.Include, matches)
	switch {
	case !links.Within(to.URL, j.hosts):
		return frontier.OtherHost
	case !to.Sitemap && (!included || slices.ContainsFunc(j.Exclude, matches)):
		return frontier.Excluded
	case to.Depth < 0:
		return frontier.TooDeep
	}
	return ""
}

// full says why links are left out.
func (j *crawlJob) full() string {
	return fmt.Sprintf("the crawl may have %d pages, and %d of a host", cmp.Or(j.MaxPages, DefaultMaxPages), cmp.Or(j.MaxHostPages, DefaultMaxHostPages))
}

func (h *CrawlHandler) agent() string { return cmp.Or(h.Agent, "headgate") }

// get makes one GET, for a URL that others wrote: without secrets, and without
// following redirects. The caller closes the answer's body. The error is that of
// HTTPHandler: a NetworkError, or an AddressError that archives the job.
func (j *crawlJob) get(ctx context.Context, url string) (*answer, error) {
	headers := map[string]string{"User-Agent": j.agent(), "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
	call := HTTPRequest{Method: http.MethodGet, URL: url, Headers: headers}
	return j.HTTP.exchange(ctx, call, call, nil)
}
