package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks/internal/links"
	"github.com/headgate/headgate/tasks/internal/robots"
	"github.com/headgate/headgate/throttle"
)

const (
	// robotsMaxWait is the time for which pages wait if requests for a robots.txt fail.
	robotsMaxWait = 12 * time.Hour
	// maxPutBack is the longest pause of a job that waits for another job's request.
	maxPutBack = time.Second
)

// errNoRobots is the error of a page whose robots.txt is not available. RFC 9309 forbids to fetch
// the page then (2.3.1.4).
var errNoRobots = errors.New("robots.txt is not available, so the page is not fetched")

// knownRobots returns an origin's robots.txt if it was fetched within a day, or nil.
func (j *crawlJob) knownRobots(ctx context.Context, of string) (*robots.File, error) {
	kept, err := j.frontier.Robots(ctx, of)
	if err != nil || !kept.Valid {
		return nil, err
	}
	return robots.FromResponse(kept.Status, kept.Text, j.agent()), nil
}

// requestRobots requests the robots.txt of the page's origin under the job's permit. It returns the
// file if the file disallows the page. Otherwise its error puts the job back for another permit, so
// each request has its own permit.
//
// One job requests the file. Other jobs are put back for at most a second, and each such run costs
// a permit. If the request fails, all jobs wait until the next request: see failRobots.
func (j *crawlJob) requestRobots(ctx context.Context) (*robots.File, error) {
	of := origin(j.page.URL)
	held, err := j.frontier.LockRobots(ctx, of)
	switch {
	case err != nil:
		return nil, err
	case held != nil && held.FailingSince.IsZero():
		return nil, putBack(min(held.Wait, maxPutBack), "another job requests robots.txt of "+of)
	case held != nil:
		return nil, await(*held, fmt.Errorf("%w: %w", errNoRobots, &NetworkError{URL: of + "/robots.txt", Err: errors.New("the last request failed a short time ago")}))
	}
	if err := j.fetchRobots(ctx, of); err != nil {
		return nil, err
	}
	file, err := j.knownRobots(ctx, of)
	if err == nil && file != nil {
		if !file.Allowed(j.page.URL) {
			return file, nil
		}
		err = j.pace(ctx, file) // starts the Crawl-delay
	}
	return nil, cmp.Or(err, putBack(0, "the permit was for robots.txt of "+of))
}

// fetchRobots makes one request for an origin's robots.txt, and stores the response. After a redirect
// the next job requests the URL of the redirect. After a 5xx, a 429 or no complete response,
// fetchRobots calls failRobots.
func (j *crawlJob) fetchRobots(ctx context.Context, of string) error {
	kept, err := j.frontier.Robots(ctx, of)
	if err != nil {
		return err
	}
	limited, cancel := withTimeout(ctx, DefaultTimeout)
	defer cancel()
	resp, err := j.get(limited, cmp.Or(kept.Next, of+"/robots.txt"))
	if err != nil {
		return j.failRobots(ctx, of, kept, err)
	}
	defer resp.Body.Close()
	status := resp.StatusCode
	switch {
	case status >= 500 || status == http.StatusTooManyRequests:
		resp.status.report(ctx)
		return j.failRobots(ctx, of, kept, resp.status)
	case redirects(status):
		next, err := links.Canonical(resp.Request.URL.String(), resp.Header.Get("Location"))
		if err != nil || kept.Hops >= MaxRedirects {
			return j.frontier.StoreRobots(ctx, of, http.StatusNotFound, nil, 0) // counts as no robots.txt (RFC 9309, 2.3.1.2)
		}
		return j.frontier.RedirectRobots(ctx, of, next, kept.Hops+1)
	}
	// The parser ignores text beyond MaxSize (RFC 9309, 2.5). It recognizes a longer file by its
	// size of MaxSize+1.
	text, err := io.ReadAll(io.LimitReader(resp.Body, robots.MaxSize+1))
	if err != nil {
		return j.failRobots(ctx, of, kept, &NetworkError{URL: resp.call.URL, Status: status, Err: err})
	}
	return j.frontier.StoreRobots(ctx, of, status, text, 0)
}

// failRobots handles a failed request for a robots.txt. If an old copy is stored, it is valid for
// another hour. Otherwise jobs make no requests for a while, and the error puts the job back for
// that time. A failure that the origin did not cause does not count: a canceled job, or an address
// that is not allowed.
func (j *crawlJob) failRobots(ctx context.Context, of string, kept frontier.RobotsResponse, why error) error {
	canceled := errors.Is(ctx.Err(), context.Canceled)
	ctx = context.WithoutCancel(ctx) // a slow origin may have used up the job's time
	if kept.Status != 0 {
		return j.frontier.StoreRobots(ctx, of, kept.Status, kept.Text, 23*time.Hour) // valid for one more hour
	}
	why = fmt.Errorf("%w: %w", errNoRobots, why)
	if canceled || errors.Is(why, asynq.SkipRetry) {
		return why
	}
	var retryAfter time.Duration
	if status, ok := errors.AsType[*StatusError](why); ok {
		retryAfter = min(status.RetryAfter, throttle.Day)
	}
	hold, err := j.frontier.FailRobots(ctx, of, retryAfter)
	return cmp.Or(err, await(hold, why))
}

// await returns the error that puts a page's job back until the next request for robots.txt. The
// wait can be hours and spends no attempt. After robotsMaxWait the error archives the job.
func await(hold frontier.RobotsHold, why error) error {
	if time.Since(hold.FailingSince) >= robotsMaxWait {
		return fmt.Errorf("since %s %w: %w", hold.FailingSince.UTC().Format(time.RFC3339), why, asynq.SkipRetry)
	}
	return putBack(hold.Wait, why.Error())
}

// pace enforces the Crawl-delay of the page's host across all workers. If the last delay is not
// over, the error puts the job back until its end. Otherwise a new delay begins. Until the end of
// the delay, pace blocks limits whose key is the host, so that other jobs of the host wait.
func (j *crawlJob) pace(ctx context.Context, file *robots.File) error {
	delay, host := file.CrawlDelay(), canonical.HostOf(j.page.URL)
	if delay == 0 {
		return nil
	}
	wait, err := j.frontier.Pace(ctx, host, delay)
	if err == nil {
		err = blockHost(ctx, host, cmp.Or(wait, delay))
	}
	if err != nil || wait == 0 {
		return err
	}
	return putBack(wait, fmt.Sprintf("robots.txt of %s asks for a Crawl-delay of %s", origin(j.page.URL), duration.Text(delay)))
}

// blockHost blocks the job's limits whose key is the host.
func blockHost(ctx context.Context, host string, d time.Duration) error {
	rule, _ := scheduler.GetRule(ctx)
	needs := slices.DeleteFunc(slices.Clone(rule.Needs), func(n throttle.Need) bool { return n.Key != host })
	limiter, ok := scheduler.GetLimiter(ctx)
	if !ok || len(needs) == 0 {
		return nil
	}
	return limiter.Internals().BlockFor(ctx, d, needs...)
}

// putBack returns the error that puts the job back without a failure.
func putBack(wait time.Duration, why string) error {
	return fmt.Errorf("%s: %w", why, scheduler.RetryAfter(wait))
}
