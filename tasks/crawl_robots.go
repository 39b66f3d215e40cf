package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	// robotsTimeout is how long others wait for the job that requests a robots.txt, and for
	// each redirect of it. Then that job counts as lost.
	robotsTimeout = time.Minute
	// robotsMaxWait is how long pages wait for an origin that gives no robots.txt.
	robotsMaxWait = 12 * time.Hour
	// maxPutBack is how long a job is put back at most that waits for another job's request.
	// Each time costs a permit.
	maxPutBack = time.Second
	// maxRobots is how many origins' files a job reads: a page can link thousands of origins,
	// and each file can take megabytes.
	maxRobots = 16
)

// errNoRobots is the error of a page whose robots.txt cannot be had. RFC 9309 forbids to fetch
// the page then (2.3.1.4).
var errNoRobots = errors.New("without robots.txt nothing is fetched")

// requestRobots requests the unknown robots.txt of the page's origin under the job's permit. It
// returns the file if that disallows the page. Otherwise its error puts the job back for
// another permit, so no permit pays for two requests.
//
// One job requests the file. The others are put back for a second at most, each time at the
// price of a permit. If the origin gives no robots.txt, all wait for the next attempt.
func (j *crawlJob) requestRobots(ctx context.Context) (*robots.File, error) {
	of := origin(j.page.URL)
	held, err := j.frontier.LockRobots(ctx, of, robotsTimeout)
	switch {
	case err != nil:
		return nil, err
	case held != nil && held.FailingSince.IsZero():
		return nil, putBack(min(held.Wait, maxPutBack), "another job asks for robots.txt of "+of)
	case held != nil:
		return nil, j.await(*held, fmt.Errorf("%w: %w", errNoRobots, &NetworkError{URL: of + "/robots.txt", Err: errors.New("nor did it a moment ago")}))
	}
	if err := j.fetchRobots(ctx, of, of+"/robots.txt", 0); err != nil {
		return nil, err
	}
	delete(j.robots, of) // which says that it is not known
	file, err := j.knownRobots(ctx, of)
	if err == nil && file != nil {
		if !file.Allowed(j.page.URL) {
			return file, nil
		}
		err = j.pace(ctx, file) // the delay begins with the response
	}
	return nil, cmp.Or(err, putBack(0, "the permit was for robots.txt of "+of))
}

// knownRobots returns an origin's robots.txt if it was fetched within a day, and else nil. A job
// reads an origin from Redis once. After maxRobots origins it returns nil for further ones: the
// jobs of their pages read them.
func (j *crawlJob) knownRobots(ctx context.Context, of string) (*robots.File, error) {
	if file, ok := j.robots[of]; ok || len(j.robots) >= maxRobots {
		return file, nil
	}
	kept, ok, err := j.frontier.Robots(ctx, of)
	if err != nil {
		return nil, err
	}
	j.robots[of] = nil
	if ok && kept.Valid {
		j.robots[of] = robots.FromResponse(kept.Status, kept.Text, j.agent())
	}
	return j.robots[of], nil
}

// fetchRobots makes one request for an origin's robots.txt, at a URL that redirects may have
// led to. A further redirect becomes a job of its own, under the permits of its host. The
// response is stored, also a 4xx, which allows everything. No response, a 5xx, a 429
// and a body that breaks off say nothing about the rules.
func (j *crawlJob) fetchRobots(ctx context.Context, of, url string, hops int) error {
	limited, cancel := withTimeout(ctx, DefaultTimeout)
	defer cancel()
	resp, err := j.get(limited, url)
	if err != nil {
		return j.failRobots(ctx, of, err)
	}
	defer resp.Body.Close()
	status := resp.Status
	switch {
	case status >= 500 || status == 429:
		blockLimits(ctx, resp.Response)
		return j.failRobots(ctx, of, checkStatus(resp.Response, nil, resp.at))
	case redirects(status):
		next, err := links.Canonical(resp.url.String(), resp.Header.Get("Location"))
		if err != nil || hops >= MaxRedirects {
			return j.frontier.StoreRobots(ctx, of, 404, nil, 0) // as if there were none (RFC 9309, 2.3.1.2)
		}
		// Pages of the origin wait for this job, so it goes before others. asynq gives it an ID,
		// because a crawl may request the same file again.
		job := CrawlFetch{Crawl: j.crawl.Name, URL: next, Start: j.crawl.Start, From: of + "/robots.txt", Hops: hops + 1, Robots: of}
		if err := j.enqueue(ctx, job, scheduler.Priority(scheduler.PriorityHigh)); err != nil {
			return err
		}
		return j.frontier.RelockRobots(ctx, of, robotsTimeout)
	}
	// The rest is ignored (RFC 9309, 2.5). One byte more tells the parser that there is a rest.
	text, err := io.ReadAll(io.LimitReader(resp.Body, robots.MaxSize+1))
	if err != nil {
		return j.failRobots(ctx, of, &NetworkError{URL: url, Status: status, Err: err})
	}
	return j.frontier.StoreRobots(ctx, of, status, text, 0)
}

// failRobots handles a robots.txt that cannot be had now. An old copy counts for another hour.
// Without one nothing may be fetched, and no job asks again for a while: the error puts the
// page's job back for that time. If the job was canceled, or may not call the address, that
// says nothing about the origin.
func (j *crawlJob) failRobots(ctx context.Context, of string, why error) error {
	canceled := errors.Is(ctx.Err(), context.Canceled)
	ctx = context.WithoutCancel(ctx) // it may have ended because of the origin
	old, ok, err := j.frontier.Robots(ctx, of)
	if err != nil {
		return err
	}
	if ok {
		return j.frontier.StoreRobots(ctx, of, old.Status, old.Text, 23*time.Hour) // an hour less than a day
	}
	why = fmt.Errorf("%w: %w", errNoRobots, why)
	if canceled || errors.Is(why, asynq.SkipRetry) {
		return cmp.Or(j.frontier.UnlockRobots(ctx, of), why)
	}
	var asked time.Duration
	if status, ok := errors.AsType[*StatusError](why); ok {
		asked = min(status.RetryAfter, throttle.Day)
	}
	hold, err := j.frontier.FailRobots(ctx, of, asked)
	return cmp.Or(err, j.await(hold, why))
}

// await is the error that puts a page's job back until robots.txt is requested again. That can
// take hours, and spends no attempt. After robotsMaxWait the job is archived.
func (j *crawlJob) await(hold frontier.RobotsHold, why error) error {
	switch {
	case j.page.Robots != "": // not a page's job
		return why
	case time.Since(hold.FailingSince) >= robotsMaxWait:
		return fmt.Errorf("since %s %w: %w", hold.FailingSince.UTC().Format(time.RFC3339), why, asynq.SkipRetry)
	}
	return putBack(hold.Wait, why.Error())
}

// pace enforces the Crawl-delay of the page's host: one request in that time, whichever worker
// makes it. The error puts the job back until then. Limits whose key is the host are blocked
// meanwhile, so that jobs wait for the host as they wait for permits.
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

// putBack is the error that puts the job back without a failure.
func putBack(wait time.Duration, why string) error {
	return fmt.Errorf("%s: %w", why, scheduler.RetryAfter(wait))
}
