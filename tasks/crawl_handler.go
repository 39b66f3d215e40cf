package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/tasks/frontier"
	"github.com/headgate/headgate/tasks/links"
	"github.com/headgate/headgate/tasks/robots"
	"github.com/headgate/headgate/tasks/warc"
)

// DefaultMaxPage is how many bytes of a page a crawl reads if the handler does
// not say.
const DefaultMaxPage = 10 << 20

// How many URLs a run of a crawl may find, in all and on a host, if the handler does not
// say. A site can make up links faster than anybody can fetch them.
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
//   - The page was fetched, has not changed since the last run, redirects, is not
//     there (a 4xx), or robots.txt disallows it: done, and counted as that.
//   - No answer, a broken one, none in time, a status that may pass, no disk to
//     archive on, or no robots.txt because of any of these: retried.
//   - A malformed payload, or an address that is not allowed: archived.
//
// A URL is fetched once in a run of its crawl, unless a worker dies between the
// request and the note that it was made.
//
// Beside its request a job costs some six round trips to Redis, two for every 500
// links of the page, and one for each of them that is new: these are enqueued one
// after the other.
//
// For crawls to show which pages have failed, the server's ErrorHandler calls Failed.
type CrawlHandler struct {
	// HTTP makes the calls, to the addresses that it may call, and its Observe is
	// told of the answers. Its secrets and its folder are not used.
	HTTP *HTTPHandler
	// Frontier is what the crawls have found. All workers of a crawl must share it;
	// it need not be in the Redis of the queues.
	Frontier *frontier.Frontier
	// Client enqueues what is found, in the queue of the job that found it:
	// scheduler.Client or asynq.Client, for the same Redis as the server's.
	Client interface {
		EnqueueContext(ctx context.Context, task *asynq.Task, opts ...asynq.Option) (*asynq.TaskInfo, error)
	}
	// Archive keeps the pages, but for those that ask not to be. Nil means that
	// they are not kept.
	Archive *warc.Folder
	// Agent is the User-Agent, of which the part before the slash is the name
	// that robots.txt knows the crawler by. Empty means "headgate".
	Agent string
	// MaxPage is how many bytes of a page are read; of a longer one the beginning
	// is kept and its links are followed. The zero value means DefaultMaxPage.
	MaxPage int64
	// MaxPages and MaxHostPages are how many URLs a run may find, in all and on a host;
	// what somebody enqueued himself is fetched beyond that. Links beyond are counted and
	// not followed. The zero values mean DefaultMaxPages and DefaultMaxHostPages.
	MaxPages, MaxHostPages int
	// Include and Exclude bound which links are followed, by the URL in its canonical form:
	// where there are any to include it has to match one of them, and none to exclude.
	// What somebody enqueued himself, and sitemaps, they do not matter for.
	Include, Exclude []*regexp.Regexp
	// PutBack makes the error that puts a job back for so long without a failure:
	// scheduler.RetryAfter where that package runs the job. Nil makes it one, so
	// that the first page of each origin spends an attempt on its robots.txt.
	PutBack func(time.Duration) error
	// Delay is told of the Crawl-delay of a host, before each request to it: no
	// other should start within that time. With an error nothing is fetched, and the
	// job is retried. Nil means nobody is told, and the delay is not kept.
	Delay func(ctx context.Context, host string, delay time.Duration) error
	// Urgent are options of jobs that others wait for: scheduler.Priority.
	Urgent []asynq.Option
}

// CrawlResult is the result of a crawl:fetch task, in JSON. The page itself is in the
// archive alone. Like every result it is kept for as long as the task: see HTTPResult.
type CrawlResult struct {
	// Outcome is "fetched", "unchanged", "redirected", "missing", "disallowed",
	// "seen" if the run has the URL already, "over" if the run is, "beyond" if the run
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
	// Beyond is how many links were left out: of a page that has more than are read, and
	// of a run that has as many URLs as it may have.
	Beyond int `json:"beyond,omitempty"`
	// File and Offset are where the page is in the archive.
	File   string `json:"file,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// crawlJob is one run of a job. Its steps are methods, which write what they find to
// result: prepare and claim first, then robotsFor, fetch and finish. One goroutine
// takes them.
type crawlJob struct {
	*CrawlHandler
	Frontier *frontier.Frontier // the handler's with its bounds

	task   *asynq.Task
	page   CrawlFetch              // its URL in the canonical form, its depth as claim has it
	run    frontier.Run            // the one that it belongs to, after claim
	hosts  []string                // that the crawl may go to
	robots map[string]*robots.File // by origin; nil for one that is not known
	result CrawlResult
}

// ProcessTask fetches the page and enqueues what it leads to. A job that asks for a
// robots.txt has no URL of the crawl to claim: it keeps the answer for those that
// have, and is done even if there was none.
func (h *CrawlHandler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	j, err := h.job(task)
	if err != nil {
		return fmt.Errorf("malformed payload: %w: %w", err, asynq.SkipRetry)
	}
	if h.HTTP == nil || h.Frontier == nil || h.Client == nil {
		return fmt.Errorf("this worker runs no crawls: %w", asynq.SkipRetry)
	}
	if of := j.page.Robots; of != "" {
		err = j.askRobots(ctx, of, j.page.URL, j.page.Hops)
		j.result.Outcome = "robots"
		if errors.Is(err, errNoRobots) { // which the pages will hear of
			j.result.Reason, err = err.Error(), nil
		}
	} else {
		err = j.do(ctx)
	}
	if j.result.Outcome != "" {
		if lost := keepResult(ctx, task, j.result); lost != nil && err == nil {
			err = fmt.Errorf("the result was not kept: %w", lost)
		}
	}
	return presentable(err)
}

// job is what a task asks for, in the form in which the crawl knows URLs. It has a run where
// it is given none: one named by the moment.
func (h *CrawlHandler) job(task *asynq.Task) (*crawlJob, error) {
	page, err := parse[CrawlFetch](task.Payload())
	if err != nil {
		return nil, err
	}
	j := &crawlJob{CrawlHandler: h, task: task, page: page, robots: map[string]*robots.File{}}
	j.page.URL, err = links.Canonical("", page.URL)
	j.hosts = j.page.Hosts()
	j.page.Run = cmp.Or(page.Run, time.Now().UTC().Format("20060102T150405.000"))
	if h.Frontier != nil {
		j.Frontier = h.Frontier.Bounded(cmp.Or(h.MaxPages, DefaultMaxPages), cmp.Or(h.MaxHostPages, DefaultMaxHostPages))
	}
	return j, err
}

// Failed notes that a job is archived or dropped, whose error that was: what calls it
// is the server's ErrorHandler, with what that was given. It passes over tasks of other
// types, and failures after which the job is tried again. Without it the crawl goes
// on to count the page as waiting, and never is complete. The error is Redis's; it
// waits for 5 seconds at most.
func (h *CrawlHandler) Failed(ctx context.Context, task *asynq.Task, err error) error {
	retried, _ := asynq.GetRetryCount(ctx)
	maxRetry, _ := asynq.GetMaxRetry(ctx)
	ends := retried >= maxRetry || errors.Is(err, asynq.SkipRetry) || errors.Is(err, asynq.RevokeTask)
	if task.Type() != TypeCrawlFetch || h.Frontier == nil || !ends {
		return nil
	}
	j, malformed := h.job(task)
	if malformed != nil || j.page.Robots != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	answer, err := j.claim(ctx)
	if err != nil || answer != frontier.Take {
		return err
	}
	_, err = h.Frontier.Done(ctx, j.run, j.page.link(), frontier.Failed, nil)
	return err
}

// do goes through what a job does, step by step. A URL that the run has already, or
// that another job has, may have been found on a shorter way this time, so that its
// links can be followed further: that is spread, without another request.
func (j *crawlJob) do(ctx context.Context) error {
	answer, err := j.claim(ctx)
	switch {
	case err != nil:
		return err
	case answer == frontier.Old:
		j.result.Outcome = "over"
		return nil
	case answer == frontier.Full:
		j.result.Outcome, j.result.Reason = "beyond", j.full()
		return nil
	case answer != frontier.Take:
		j.result.Outcome = "seen"
		return j.spread(ctx, []CrawlFetch{j.page}) // which may lead further than it did
	}
	file, err := j.robotsFor(ctx)
	if err != nil {
		return err
	}
	if !file.Allowed(j.page.URL) {
		j.result.Outcome, j.result.Reason = "disallowed", "robots.txt of "+origin(j.page.URL)+" disallows it"
		return j.finish(ctx, frontier.Disallowed, nil)
	}
	return j.fetch(ctx, file)
}

// goes reports whether the crawl follows a link: to its host, and to that URL. Links that
// lead into traps it does not.
func (j *crawlJob) goes(to string) bool {
	matches := func(pattern *regexp.Regexp) bool { return pattern.MatchString(to) }
	return links.Within(to, j.hosts) && (len(j.Include) == 0 || slices.ContainsFunc(j.Include, matches)) &&
		!slices.ContainsFunc(j.Exclude, matches) && !links.Trap(to, time.Now())
}

// full says why links are left out.
func (j *crawlJob) full() string {
	return fmt.Sprintf("the crawl may have %d pages, and %d of a host", cmp.Or(j.MaxPages, DefaultMaxPages), cmp.Or(j.MaxHostPages, DefaultMaxHostPages))
}

// claim takes the URL. After it the job has its run, and the depth to which the
// URL's links are to be followed: the largest that it was found at. It returns one of
// the answers of package frontier.
func (j *crawlJob) claim(ctx context.Context) (string, error) {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	run, answer, depth, err := j.Frontier.Claim(ctx, frontier.Claim{
		Run:  frontier.Run{Crawl: j.page.Crawl, Name: j.page.Run},
		Link: j.page.link(),
		Job:  queue + "/" + id, Seed: j.page.From == "", Anew: j.page.Anew,
	})
	j.run = run
	if answer == frontier.Take {
		j.page.Depth = depth
	}
	return answer, err
}

// finish notes what has become of the URL, after all that it leads to has been
// enqueued: whoever dies before that runs again. Meanwhile the URL may have been
// found nearer to where the crawl began: then its links are spread once more, to the
// larger depth. That ends, for depths grow and are bounded.
func (j *crawlJob) finish(ctx context.Context, state frontier.State, page *frontier.Page) error {
	depth := j.page.Depth
	for {
		if err := j.spread(ctx, leads(page, depth, j.page.Hops)); err != nil {
			return err
		}
		asked, err := j.Frontier.Done(ctx, j.run, frontier.Link{URL: j.page.URL, Depth: depth}, state, page)
		if err != nil || asked <= depth {
			return err
		}
		depth = asked
	}
}

func (h *CrawlHandler) agent() string { return cmp.Or(h.Agent, "headgate") }

// get makes one GET, for a URL that others wrote: without secrets, and without
// following redirects. The caller closes the answer's body. The error is that of
// HTTPHandler: a NetworkError, or an AddressError that archives the job.
func (j *crawlJob) get(ctx context.Context, url string, header map[string]string) (*answer, error) {
	headers := map[string]string{"User-Agent": j.agent(), "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
	maps.Copy(headers, header)
	call := HTTPRequest{Method: http.MethodGet, URL: url, Headers: headers}
	a, err := j.HTTP.exchange(ctx, call, call, nil)
	if err == nil {
		j.HTTP.observe(ctx, j.task, a.Answer)
	}
	return a, err
}
