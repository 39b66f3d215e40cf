package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks/internal/links"
	"github.com/headgate/headgate/throttle"
)

// The defaults of CrawlHandler.MaxPage (in bytes), MaxPages and MaxHostPages.
const (
	DefaultMaxPage      = 10 << 20
	DefaultMaxPages     = 100_000
	DefaultMaxHostPages = 10_000
)

// DefaultCrawlRate is the default of CrawlHandler.Rate.
var DefaultCrawlRate = throttle.PerSecond(1)

// CrawlHandler runs crawl:fetch tasks. HTTP, Redis and Client are required. It is safe for
// concurrent use, and its fields must not change after its first task. It must run on a
// scheduler.Server, which can put jobs back, and the server's ErrorHandler must call Failed.
//
// A run of a job makes at most one request, so one permit for the host of the page is enough. If no
// limit of the job has the host in its key, the handler itself spaces the requests for pages of the
// host, at Rate. If
// Redis does not have the origin's robots.txt, the run requests this file, and the job is put back.
// Links and redirects become further jobs, which run under the permits of their own hosts. The
// task's result is a CrawlResult. The job ends as follows:
//
//   - The page was fetched, redirects, does not exist (a 4xx), or is disallowed by robots.txt:
//     done.
//   - No complete response in time, a status such as 503 that may change, or no space on disk:
//     retried.
//   - No robots.txt because of a 5xx, a 429 or no response: put back without spending an attempt,
//     for 30 s to an hour each time, or until the time of a Retry-After. After 12 hours of failures
//     the job is archived.
//   - A malformed payload, a sitemap without entries, or an address that is not allowed: archived.
type CrawlHandler struct {
	// HTTP makes the calls. Its secrets and its SaveDir are not used.
	HTTP *HTTPHandler
	// Redis keeps the state of the crawls. All workers of a crawl must share it.
	Redis redis.UniversalClient
	// Scope separates crawls of different programs in one Redis. The zero value means "default".
	Scope string
	// Client enqueues a job for each URL that a page leads to, in the queue of the page's job. A
	// *scheduler.Client is one.
	Client interface {
		EnqueueAll(ctx context.Context, tasks ...*asynq.Task) []scheduler.EnqueueResult
	}
	// Options returns further options of these jobs. It may be nil.
	Options func() []asynq.Option
	// Agent is the User-Agent. Its part before the slash is the crawler's name in robots.txt. The
	// zero value means `headgate`.
	Agent string `yaml:"agent"`
	// SaveDir is the folder below which the bodies of pages are saved, in a folder for each crawl.
	// A file is named by the body's SHA-256. A page with noindex is not saved. The folder must
	// exist. The zero value means nothing is saved.
	SaveDir string `yaml:"save_dir"`
	// MaxPage is the maximum number of bytes that are read of a page. Of a longer page, only the
	// links within these bytes are followed. The zero value means tasks.DefaultMaxPage.
	MaxPage int64 `yaml:"max_page"`
	// MaxPages is the maximum number of URLs of a crawl. URLs that robots.txt disallows do not
	// count, and URLs that users enqueue have no maximum. The zero value means
	// tasks.DefaultMaxPages.
	MaxPages int `yaml:"max_pages"`
	// MaxHostPages is the maximum number of URLs of a crawl on one host. The zero value means
	// tasks.DefaultMaxHostPages.
	MaxHostPages int `yaml:"max_host_pages"`
	// Rate is the rate of requests to a host if no limit of the job has the host in its key. The
	// zero value means `1/s`.
	Rate throttle.Rate `yaml:"rate"`
	// Include is a list of patterns. A link is followed only if its canonical URL matches one of
	// the patterns. Sitemaps and URLs that users enqueue need no match. The zero value means all
	// links to the crawl's hosts.
	Include []*regexp.Regexp `yaml:"include"`
	// Exclude is a list of patterns of links that are not followed. The zero value means none.
	Exclude []*regexp.Regexp `yaml:"exclude"`
}

// CrawlResult is the result of a crawl:fetch task, in JSON.
type CrawlResult struct {
	// Outcome is one of:
	//
	//   - "fetched", "redirected", "disallowed"
	//   - "missing": a permanent 4xx, or a redirect that cannot be followed
	//   - "seen": another job of the crawl has finished with the URL, or works on it
	//   - "over": a newer crawl of the same name has started
	Outcome   string `json:"outcome"`
	Reason    string `json:"reason,omitempty"`    // explains the outcome
	Status    int    `json:"status,omitempty"`    // 0 if the page was not requested
	Type      string `json:"type,omitempty"`      // Content-Type
	Length    int    `json:"length,omitempty"`    // number of bytes that were read
	Truncated bool   `json:"truncated,omitempty"` // the page is longer than CrawlHandler.MaxPage; Length is MaxPage
	Links     int    `json:"links,omitempty"`     // number of URLs that the page leads to
	New       int    `json:"new,omitempty"`       // number of jobs that this job enqueued
	Omitted   int    `json:"omitted,omitempty"`   // number of links that were left out because of a maximum
	Saved     string `json:"saved,omitempty"`     // file with the body, below the handler's SaveDir
}

// crawlJob is one run of a job.
type crawlJob struct {
	*CrawlHandler
	frontier *frontier.Frontier

	page   CrawlFetch     // the payload with its URL in canonical form
	crawl  frontier.Crawl // the job's crawl; claim sets it to the current crawl of the same name
	hosts  []string       // hosts that the crawl may visit
	result CrawlResult
	file   string // of the saved page in the crawl's folder, or ""
}

// ProcessTask fetches the page and enqueues its links.
func (h *CrawlHandler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	j, err := h.job(task)
	if err != nil {
		return malformed(err)
	}
	err = j.run(ctx)
	if j.result.Outcome != "" {
		err = keepResult(ctx, task, j.result, err)
	}
	return presentable(err)
}

// Check returns the error with which ProcessTask would refuse the task: see HTTPHandler.Check.
func (h *CrawlHandler) Check(task *asynq.Task) error {
	page, err := parse[CrawlFetch](task.Payload())
	if err != nil {
		return presentable(malformed(err))
	}
	return presentable(h.HTTP.checkAddress(page.URL))
}

// job returns a run for a task, or an error if the payload is malformed.
func (h *CrawlHandler) job(task *asynq.Task) (*crawlJob, error) {
	page, err := parse[CrawlFetch](task.Payload())
	if err != nil {
		return nil, err
	}
	f := frontier.New(h.Redis, h.Scope)
	f.MaxURLs, f.MaxHostURLs = cmp.Or(h.MaxPages, DefaultMaxPages), cmp.Or(h.MaxHostPages, DefaultMaxHostPages)
	page.URL, err = links.Canonical("", page.URL)
	crawl := frontier.Crawl{Name: page.Crawl, Start: cmp.Or(page.Start, time.Now().UnixMicro())}
	return &crawlJob{CrawlHandler: h, frontier: f, page: page, crawl: crawl, hosts: page.Hosts()}, err
}

// failedTimeout is how long a worker waits for Redis when it notes that a page has failed.
const failedTimeout = 5 * time.Second

// Failed records that a job is archived or dropped, so that the crawl does not count its page as
// waiting. The server's ErrorHandler must pass its arguments to Failed for every error. Failed
// ignores other types of tasks, and attempts that will be retried. It takes at most 5 s.
func (h *CrawlHandler) Failed(ctx context.Context, task *asynq.Task, err error) error {
	retried, _ := asynq.GetRetryCount(ctx)
	maxRetry, _ := asynq.GetMaxRetry(ctx)
	ends := retried >= maxRetry || errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask)
	if task.Type() != TypeCrawlFetch || !ends {
		return nil
	}
	j, malformed := h.job(task)
	if malformed != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), failedTimeout)
	defer cancel()
	claimed, err := j.claim(ctx)
	if err != nil || claimed != frontier.Take {
		return err
	}
	return j.frontier.Done(ctx, j.crawl, j.page.URL, frontier.Failed, "", 0)
}

// run claims the job's URL and fetches it, if robots.txt allows that.
func (j *crawlJob) run(ctx context.Context) error {
	claimed, err := j.claim(ctx)
	if err != nil {
		return err
	}
	if claimed != frontier.Take {
		if j.result.Outcome = "seen"; claimed == frontier.Over {
			j.result.Outcome = "over"
		}
		return nil
	}
	file, err := j.robotsFile(ctx)
	if err != nil {
		return err
	}
	if !file.Allowed(j.page.URL) {
		j.result.Reason = "robots.txt of " + origin(j.page.URL) + " disallows it"
		return j.finish(ctx, file, frontier.Disallowed, nil, 0)
	}
	return j.fetch(ctx, file)
}

// claim claims the job's URL, and sets j.crawl to the current crawl.
func (j *crawlJob) claim(ctx context.Context) (result string, err error) {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	j.crawl, result, err = j.frontier.Claim(ctx, j.crawl, j.page.URL, j.page.From, queue+"/"+id)
	return result, err
}

func (h *CrawlHandler) agent() string { return cmp.Or(h.Agent, "headgate") }

// get makes one GET request. The caller closes the response's body.
func (j *crawlJob) get(ctx context.Context, url string) (*openResponse, error) {
	headers := map[string]string{"User-Agent": j.agent(), "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
	return j.HTTP.exchange(ctx, HTTPRequest{URL: url, Headers: headers})
}

// enqueue enqueues jobs for other pages in this job's queue, with this job's MaxRetry. It ignores
// pages that have a job already.
func (j *crawlJob) enqueue(ctx context.Context, pages []CrawlFetch) error {
	var opts []asynq.Option
	if j.Options != nil {
		opts = j.Options()
	}
	if queue, ok := asynq.GetQueueName(ctx); ok {
		opts = append(opts, asynq.Queue(queue))
	}
	if retries, ok := asynq.GetMaxRetry(ctx); ok {
		opts = append(opts, asynq.MaxRetry(retries))
	}
	tasks := make([]*asynq.Task, len(pages))
	for i, page := range pages {
		// In the new job, SameHost would mean the host of the new URL.
		page.Crawl, page.Allow, page.Start, page.From = j.crawl.Name, j.hosts, j.crawl.Start, j.page.URL
		payload, err := marshal(page)
		if err != nil {
			return err
		}
		tasks[i] = scheduler.NewTask(TypeCrawlFetch, payload, append(slices.Clip(opts), asynq.TaskID(page.id(page.URL)), scheduler.InBatch(""))...)
	}
	for i, added := range j.Client.EnqueueAll(ctx, tasks...) {
		if added.Err != nil && !errors.Is(added.Err, asynq.ErrTaskIDConflict) {
			return fmt.Errorf("%s leads to %s: %w", j.page.URL, pages[i].URL, added.Err)
		}
	}
	return nil
}

// origin returns the scheme, host and port of a URL, or "" if the text is not a URL.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
