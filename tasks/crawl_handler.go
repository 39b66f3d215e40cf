package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/tasks/internal/links"
	"github.com/headgate/headgate/tasks/internal/robots"
)

// DefaultMaxPage is how many bytes of a page a crawl reads if the handler does not say.
const DefaultMaxPage = 10 << 20

// How many URLs a crawl may have, in all and on one host, if the handler does not say. A site
// can generate links faster than they can be fetched.
const (
	DefaultMaxPages     = 100_000
	DefaultMaxHostPages = 10_000
)

// CrawlHandler runs crawl:fetch tasks. HTTP, Redis and Client are required; without them every
// job is archived. It is safe for concurrent use, but must not be copied, nor its fields
// changed, after its first task.
//
// A job makes at most one request, so one permit for its URL's host is enough. If the origin's
// robots.txt is not known, the job requests that and is put back. The links and redirects
// that it finds become jobs of their own, so each is fetched under the permits of its own host.
// The task's result is a CrawlResult. The job ends as follows:
//
//   - The page was fetched, redirects, does not exist (a 4xx), or is disallowed by robots.txt:
//     done, and counted as such.
//   - No response, a broken one, none in time, a temporary status, or no disk to save
//     to: retried.
//   - No robots.txt because of no response, a 5xx or a 429: put back, with pauses that grow
//     from 30 s to an hour, and archived after 12 hours.
//   - A malformed payload, or an address that is not allowed: archived.
//
// A URL is fetched once in a crawl, unless a worker dies between the request and its record in
// Redis. Besides its request, a job costs about six round trips to Redis, one for every 500
// links of the page, and one for each new link, because jobs are enqueued one by one.
//
// For crawls to count failed pages, the server's ErrorHandler must call Failed. A job is put
// back by scheduler.RetryAfter, so a server of package scheduler must run it. With a Feedback
// around the handler, a host's limits learn its responses and its Crawl-delay.
type CrawlHandler struct {
	// HTTP makes the calls, to the addresses that it may call. Its secrets and its folder
	// are not used.
	HTTP *HTTPHandler
	// Redis keeps what the crawls have found. All workers of a crawl must share it; it need
	// not be the Redis of the queues.
	Redis redis.UniversalClient
	// Scope separates crawls of different programs in one Redis. Empty means "default".
	Scope string
	// Client enqueues the pages that a job found, in the job's queue. It is a scheduler.Client
	// or asynq.Client for the same Redis as the server's.
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

// CrawlResult is the result of a crawl:fetch task, in JSON. Like an HTTPResult it is kept as
// long as the task.
type CrawlResult struct {
	// Outcome is "fetched", "redirected", "missing" (also for a redirect that leads nowhere),
	// "disallowed", "seen" if the crawl has the URL already, "over" if the crawl has started
	// again, "beyond" if the crawl has no room for the URL, and "robots" for a job that
	// fetched a robots.txt.
	Outcome string `json:"outcome"`
	// Reason says more, in words.
	Reason string `json:"reason,omitempty"`
	// Status is the page's, and 0 if it was not requested.
	Status int `json:"status,omitempty"`
	// Type is the Content-Type, Length how many bytes of the page were read, and
	// Truncated whether there were more.
	Type      string `json:"type,omitempty"`
	Length    int    `json:"length,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	// Links is how many URLs the page leads to, and New how many of them this job enqueued.
	Links int `json:"links,omitempty"`
	New   int `json:"new,omitempty"`
	// Beyond is how many links were left out because the page has more than are read, or
	// the crawl has as many URLs as it may have.
	Omitted int `json:"omitted,omitempty"`
	// Saved is the file with the body, below the handler's SaveDir.
	Saved string `json:"saved,omitempty"`
}

// crawlJob is one run of a job, in one goroutine.
type crawlJob struct {
	*CrawlHandler
	frontier *frontier.Frontier

	page   CrawlFetch              // with the URL in canonical form
	crawl  frontier.Crawl          // after claim, the crawl that the job belongs to
	hosts  []string                // that the crawl may visit
	robots map[string]*robots.File // by origin; nil if it is not known
	result CrawlResult
}

// ProcessTask fetches the page and enqueues the pages that it leads to. A job that requests a
// robots.txt elsewhere claims no URL: it stores the response for the jobs of pages, and is done
// even if there was none.
func (h *CrawlHandler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	j, err := h.job(task)
	if err != nil {
		return malformed(err)
	}
	if h.HTTP == nil || h.Redis == nil || h.Client == nil {
		return notCalled{fmt.Errorf("this worker runs no crawls: %w", asynq.SkipRetry)}
	}
	if of := j.page.Robots; of != "" {
		err = j.fetchRobots(ctx, of, j.page.URL, j.page.Hops)
		j.result.Outcome = "robots"
		if errors.Is(err, errNoRobots) { // which the jobs of pages report
			j.result.Reason, err = err.Error(), nil
		}
	} else {
		err = j.run(ctx)
	}
	if j.result.Outcome != "" {
		err = keepResult(ctx, task, j.result, err)
	}
	return presentable(err)
}

// job reads a task.
func (h *CrawlHandler) job(task *asynq.Task) (*crawlJob, error) {
	page, err := parse[CrawlFetch](task.Payload())
	if err != nil {
		return nil, err
	}
	j := &crawlJob{CrawlHandler: h, page: page, robots: map[string]*robots.File{}}
	j.page.URL, err = links.Canonical("", page.URL)
	j.hosts = j.page.Hosts()
	j.crawl = frontier.Crawl{Name: page.Crawl, Start: cmp.Or(page.Start, time.Now().UnixMicro())}
	j.frontier = frontier.New(h.Redis, h.Scope)
	j.frontier.MaxURLs, j.frontier.MaxHostURLs = cmp.Or(h.MaxPages, DefaultMaxPages), cmp.Or(h.MaxHostPages, DefaultMaxHostPages)
	return j, err
}

// Failed records that a job is archived or dropped. The server's ErrorHandler calls it with its
// own arguments. It ignores other types of tasks and failures after which the job is retried.
// Without it, the crawl counts the page as waiting for a week. Its error is Redis's; it waits
// for at most 5 seconds.
func (h *CrawlHandler) Failed(ctx context.Context, task *asynq.Task, err error) error {
	retried, _ := asynq.GetRetryCount(ctx)
	maxRetry, _ := asynq.GetMaxRetry(ctx)
	ends := retried >= maxRetry || errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask)
	if task.Type() != TypeCrawlFetch || h.Redis == nil || !ends {
		return nil
	}
	j, malformed := h.job(task)
	if malformed != nil || j.page.Robots != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	claimed, err := j.claim(ctx, false)
	if err != nil || claimed != frontier.Take {
		return err
	}
	return j.frontier.Done(ctx, j.crawl, j.page.URL, frontier.Failed, 0)
}

// Tidy removes the unfinished files of killed processes in SaveDir: see HTTPHandler.Tidy.
func (h *CrawlHandler) Tidy() error { return (&HTTPHandler{SaveDir: h.SaveDir}).Tidy() }

// run claims the job's URL and fetches it, if robots.txt allows that.
func (j *crawlJob) run(ctx context.Context) error {
	file, err := j.knownRobots(ctx, origin(j.page.URL))
	if err != nil {
		return err
	}
	claimed, err := j.claim(ctx, file != nil && file.Allowed(j.page.URL))
	switch {
	case err != nil:
		return err
	case claimed == frontier.Over:
		j.result.Outcome = "over"
		return nil
	case claimed == frontier.Full:
		j.result.Outcome, j.result.Reason = "full", j.full()
		return nil
	case claimed != frontier.Take:
		j.result.Outcome = "seen"
		return nil
	}
	if file == nil {
		if file, err = j.requestRobots(ctx); err != nil {
			return err
		}
	}
	if !file.Allowed(j.page.URL) {
		j.result.Outcome, j.result.Reason = "disallowed", "robots.txt of "+origin(j.page.URL)+" disallows it"
		return j.frontier.Done(ctx, j.crawl, j.page.URL, frontier.Disallowed, 0)
	}
	return j.fetch(ctx, file)
}

// claim claims the URL, and sets the job's crawl. Allowed reports whether robots.txt is known to
// allow the URL.
func (j *crawlJob) claim(ctx context.Context, allowed bool) (result string, err error) {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	crawl, result, err := j.frontier.Claim(ctx, frontier.Claim{
		Crawl: j.crawl, URL: j.page.URL, From: j.page.From,
		Job: queue + "/" + id, Allowed: allowed,
	})
	if err == nil {
		j.crawl = crawl
	}
	return result, err
}

// full is the reason for links that are left out for lack of room.
func (j *crawlJob) full() string {
	return fmt.Sprintf("the crawl may have %d pages, and %d of a host", j.frontier.MaxURLs, j.frontier.MaxHostURLs)
}

func (h *CrawlHandler) agent() string { return cmp.Or(h.Agent, "headgate") }

// get makes one GET request without secrets, and does not follow redirects. The caller closes
// the response's body. The error is that of HTTPHandler.
func (j *crawlJob) get(ctx context.Context, url string) (*openResponse, error) {
	headers := map[string]string{"User-Agent": j.agent(), "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
	call := HTTPRequest{Method: http.MethodGet, URL: url, Headers: headers}
	return j.HTTP.exchange(ctx, call, call, nil)
}

// enqueue enqueues another job of the crawl in this job's queue, with as many retries. It does
// nothing if that job exists.
func (j *crawlJob) enqueue(ctx context.Context, page CrawlFetch, opts ...asynq.Option) error {
	task, err := NewCrawlFetch(page)
	if err != nil {
		return err
	}
	if queue, ok := asynq.GetQueueName(ctx); ok {
		opts = append(opts, asynq.Queue(queue))
	}
	if retries, ok := asynq.GetMaxRetry(ctx); ok {
		opts = append(opts, asynq.MaxRetry(retries))
	}
	_, err = j.Client.EnqueueContext(ctx, task, opts...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil
	}
	return err
}

// origin returns the scheme, host and port of a URL, for which a robots.txt counts. It is empty
// if the text is no URL.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
