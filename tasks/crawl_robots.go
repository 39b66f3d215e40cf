package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks/internal/robots"
	"github.com/headgate/headgate/throttle"
)

const (
	robotsMinHold = 30 * time.Second // the pause after the first failed request for a robots.txt
	robotsMaxHold = time.Hour        // the longest pause after a failed request for a robots.txt
	robotsMaxWait = 12 * time.Hour   // the time after which jobs are archived if all requests for their robots.txt fail
	maxPutBack    = time.Second      // the longest pause of a job while another job requests the robots.txt
)

// robotsFile returns the robots.txt of the page's origin. If Redis does not have the file, the job
// uses its permit to request the file. If that file disallows the page, robotsFile returns the
// file. If it does not, an error puts the job back, because the page needs another permit. During
// the request, other jobs of the origin are put back for at most a second.
func (j *crawlJob) robotsFile(ctx context.Context) (*robots.File, error) {
	pageOrigin := origin(j.page.URL)
	known, err := j.frontier.Robots(ctx, pageOrigin)
	if err != nil || known.Known {
		return robots.Parse(known.Text, j.agent()), err
	}
	wait, err := j.frontier.LockRobots(ctx, pageOrigin)
	switch {
	case err != nil:
		return nil, err
	case wait > 0 && known.FailingSince != 0:
		return nil, await(known, wait, fmt.Errorf("%s/robots.txt failed a short time ago", pageOrigin))
	case wait > 0:
		return nil, putBack(min(wait, maxPutBack), "another job requests robots.txt of "+pageOrigin)
	}
	if known, err = j.fetchRobots(ctx, pageOrigin, known); err != nil {
		return nil, err
	}
	if known.Known {
		file := robots.Parse(known.Text, j.agent())
		if !file.Allowed(j.page.URL) {
			return file, nil
		}
		if err := j.pace(ctx, file); err != nil { // the request for robots.txt starts the Crawl-delay
			return nil, err
		}
	}
	return nil, putBack(0, "the permit was for robots.txt of "+pageOrigin)
}

// fetchRobots makes one request for an origin's robots.txt, and stores the result in Redis. After a
// redirect, the next run of a job requests the URL of the redirect. A 4xx that is no rate limit
// means that there is no file (RFC 9309, 2.3.1). An invalid redirect, and a redirect after MaxRedirects
// redirects, mean the same. A 5xx, a rate limit and an incomplete response are failures.
func (j *crawlJob) fetchRobots(ctx context.Context, origin string, known frontier.Robots) (frontier.Robots, error) {
	limited, cancel := withTimeout(ctx, DefaultTimeout)
	defer cancel()
	resp, err := j.get(limited, cmp.Or(known.Next, origin+"/robots.txt"))
	if err != nil {
		return known, j.failRobots(ctx, origin, known, err)
	}
	defer resp.Body.Close()
	fetched := frontier.Robots{Known: true}
	switch status := resp.StatusCode; {
	case status >= http.StatusInternalServerError || resp.status.isRateLimit():
		resp.status.block(ctx)
		return known, j.failRobots(ctx, origin, known, resp.status)
	case redirects(status):
		next, err := resp.target()
		if err == nil && known.Hops < MaxRedirects {
			fetched = frontier.Robots{Next: next, Hops: known.Hops + 1, FailingSince: known.FailingSince}
		}
	case status/100 == 2:
		// One byte more than MaxSize shows the parser that the file is too long.
		if fetched.Text, err = io.ReadAll(io.LimitReader(resp, robots.MaxSize+1)); err != nil {
			return known, j.failRobots(ctx, origin, known, err)
		}
	}
	return fetched, j.frontier.StoreRobots(ctx, origin, fetched, 0)
}

// failRobots handles a failed request for a robots.txt, and returns the job's error. After the
// first failure, no job requests the file for 30 s. Each further failure about doubles this pause,
// up to an hour. If the origin asks for a longer pause, the pause is as long, but at most a day. If
// the job was canceled, or the address is not allowed, failRobots returns cause and stores nothing.
func (j *crawlJob) failRobots(ctx context.Context, origin string, known frontier.Robots, cause error) error {
	if errors.Is(ctx.Err(), context.Canceled) || errors.Is(cause, asynq.SkipRetry) {
		return cause
	}
	now := time.Now()
	failed := frontier.Robots{FailingSince: cmp.Or(known.FailingSince, now.UnixMilli())}
	wait := min(robotsMinHold+now.Sub(time.UnixMilli(failed.FailingSince)), robotsMaxHold)
	if status, ok := errors.AsType[*StatusError](cause); ok {
		wait = max(wait, min(status.RetryAfter, throttle.Day))
	}
	// The request may have used up the time of ctx.
	if err := j.frontier.StoreRobots(context.WithoutCancel(ctx), origin, failed, wait); err != nil {
		return err
	}
	return await(failed, wait, cause)
}

// await returns the error that puts a page's job back until a job may request robots.txt again.
// Without the file, no page may be fetched (RFC 9309, 2.3.1.4). If the requests have failed for
// robotsMaxWait, the error archives the job.
func await(failed frontier.Robots, wait time.Duration, cause error) error {
	since := time.UnixMilli(failed.FailingSince)
	cause = fmt.Errorf("since %s robots.txt is not available, so the page is not fetched: %w", since.UTC().Format(time.RFC3339), cause)
	if time.Since(since) >= robotsMaxWait {
		return fmt.Errorf("%w: %w", cause, asynq.SkipRetry)
	}
	return putBack(wait, cause.Error())
}

// pace enforces the Crawl-delay of the page's host, or the handler's Rate if that is slower and no
// limit of the job has the host in its key, across all workers. If a delay is running, the error
// puts the job back until the delay ends. If none is running, pace starts a delay and returns nil. In
// both cases pace blocks the host's key in the job's limits until the delay ends, so that other jobs
// wait.
func (j *crawlJob) pace(ctx context.Context, file *robots.File) error {
	delay, host := file.CrawlDelay, canonical.HostOf(j.page.URL)
	cause := fmt.Sprintf("robots.txt of %s asks for a Crawl-delay of %s", origin(j.page.URL), duration.Text(delay))
	rule, _ := scheduler.GetRule(ctx)
	limited := slices.ContainsFunc(rule.Needs, func(n throttle.Need) bool { return hasHost(n.Key, host) })
	rate := cmp.Or(j.Rate, DefaultCrawlRate)
	if own := rate.Per / time.Duration(max(1, rate.N)); !limited && own > delay {
		delay = own
		cause = fmt.Sprintf("no limit of the job has a key with the host %s, which gets a request each %s", host, duration.Text(delay))
	}
	if delay == 0 {
		return nil
	}
	wait, err := j.frontier.Pace(ctx, host, delay)
	if err != nil {
		return err
	}
	needs := slices.DeleteFunc(slices.Clone(rule.Needs), func(n throttle.Need) bool { return n.Key != host })
	if limiter, ok := scheduler.GetLimiter(ctx); ok && len(needs) > 0 {
		err = limiter.Internals().BlockFor(ctx, cmp.Or(wait, delay), needs...)
	}
	if err != nil || wait == 0 {
		return err
	}
	return putBack(wait, cause)
}

// hasHost reports whether a key contains a host, and not only a longer name with the same letters.
func hasHost(key, host string) bool {
	isName := func(r rune) bool { return r == '.' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	before, after, found := strings.Cut(key, host)
	if !found {
		return false
	}
	last, _ := utf8.DecodeLastRuneInString(before)
	next, _ := utf8.DecodeRuneInString(after)
	return !isName(last) && !isName(next) || hasHost(after, host)
}

// putBack returns the error that puts the job back for wait. The run does not count as a failure.
func putBack(wait time.Duration, cause string) error {
	return fmt.Errorf("%s: %w", cause, scheduler.RetryAfter(wait))
}
