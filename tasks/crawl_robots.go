package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks/frontier"
	"github.com/headgate/headgate/tasks/internal/links"
	"github.com/headgate/headgate/tasks/internal/robots"
	"github.com/headgate/headgate/throttle"
)

const (
	// robotsTime is how long others wait for the job that asks for a robots.txt, and
	// for each redirect of it until its job has run. Then it counts as lost.
	robotsTime = time.Minute
	// robotsPatience is how long pages wait for an origin that gives no robots.txt.
	robotsPatience = 12 * time.Hour
	// maxAwait is how long a job is put back at most that waits for another's
	// request: each time costs a permit.
	maxAwait = time.Second
	// maxRobots is how many origins' files a job looks at: a page can lead to thousands, and
	// each can be megabytes once it is read.
	maxRobots = 16
)

// errNoRobots is why a page is not fetched whose robots.txt cannot be had, as RFC
// 9309 wants it (2.3.1.4). The page's job waits for it.
var errNoRobots = errors.New("without robots.txt nothing is fetched")

// robotsFor asks for the robots.txt of the page's origin, which is not known, under the
// permit that the job has. The error puts the job back for another permit, unless the
// answer is enough for the page not to be fetched. So no permit pays for two requests.
//
// One job asks for an origin. The others are put back for a second at most, each
// time at the price of a permit. If the origin gives no robots.txt, all wait for the next try.
func (j *crawlJob) robotsFor(ctx context.Context) (*robots.File, error) {
	of := origin(j.page.URL)
	held, err := j.Frontier.AskRobots(ctx, of, robotsTime)
	switch {
	case err != nil:
		return nil, err
	case held != nil && held.Failing.IsZero():
		return nil, putBack(min(held.Wait, maxAwait), "another job asks for robots.txt of "+of)
	case held != nil:
		return nil, j.await(*held, fmt.Errorf("%w: %w", errNoRobots, &NetworkError{URL: of + "/robots.txt", Err: errors.New("nor did it a moment ago")}))
	}
	if err := j.askRobots(ctx, of, of+"/robots.txt", 0); err != nil {
		return nil, err
	}
	delete(j.robots, of) // which says that it is not known
	file, err := j.knownRobots(ctx, of)
	if err == nil && file != nil {
		if !file.Allowed(j.page.URL) {
			return file, nil
		}
		err = j.pace(ctx, file) // from the answer on
	}
	return nil, cmp.Or(err, putBack(0, "the permit was for robots.txt of "+of))
}

// knownRobots is an origin's robots.txt as it was fetched within a day, and nil
// if it was not. A job asks Redis once for an origin, and no server. Of more
// than maxRobots origins it is nil for the others: their pages' own jobs look.
func (j *crawlJob) knownRobots(ctx context.Context, of string) (*robots.File, error) {
	if file, ok := j.robots[of]; ok {
		return file, nil
	}
	if len(j.robots) >= maxRobots {
		return nil, nil
	}
	kept, ok, err := j.Frontier.Robots(ctx, of)
	if err != nil {
		return nil, err
	}
	j.robots[of] = nil
	if ok && kept.Fresh {
		j.robots[of] = robots.FromAnswer(kept.Status, kept.Text, j.agent())
	}
	return j.robots[of], nil
}

// askRobots makes one request for an origin's robots.txt, which redirects may
// have led to another place. A redirect becomes a job of its own. What is answered
// is kept, whatever it is: a 4xx allows everything, as robots.FromAnswer has it. No
// answer, a 5xx and a 429 are no statement, and a body that breaks off is none
// either: what it would have forbidden may be in the rest.
func (j *crawlJob) askRobots(ctx context.Context, of, url string, hops int) error {
	limited, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	a, err := j.get(limited, url)
	if err != nil {
		return j.noRobots(ctx, of, err)
	}
	defer a.resp.Body.Close()
	status := a.Status
	switch {
	case status >= 500 || status == 429: // which is no statement about robots.txt
		block(ctx, a.Answer)
		return j.noRobots(ctx, of, checkStatus(a.Answer, nil, a.at))
	case redirects(status):
		next, err := links.Canonical(a.url.String(), a.resp.Header.Get("Location"))
		if err != nil || hops >= MaxRedirects {
			return j.Frontier.KeepRobots(ctx, of, 404, nil, 0) // RFC 9309, 2.3.1.2: as if there were none
		}
		return j.followRobots(ctx, of, next, hops+1)
	}
	// What is beyond the bound is not looked at, as RFC 9309 allows (2.5); one byte more
	// tells the parser that there is something.
	text, err := io.ReadAll(io.LimitReader(a.resp.Body, robots.MaxSize+1))
	if err != nil {
		return j.noRobots(ctx, of, &NetworkError{URL: url, Status: status, Err: err})
	}
	return j.Frontier.KeepRobots(ctx, of, status, text, 0)
}

// pace keeps the Crawl-delay that the robots.txt of the page's host asks for: one request in
// that time, whichever worker makes it. The error puts the job back for as long as the host
// is to be left alone. Limits whose key is the host are blocked meanwhile, so that jobs
// wait for the host where they wait for permits.
func (j *crawlJob) pace(ctx context.Context, file *robots.File) error {
	delay, host := file.CrawlDelay(), frontier.Host(j.page.URL)
	if delay == 0 {
		return nil
	}
	wait, err := j.Frontier.Pace(ctx, host, delay)
	if err == nil {
		err = blockHost(ctx, host, cmp.Or(wait, delay))
	}
	if err != nil || wait == 0 {
		return err
	}
	return putBack(wait, fmt.Sprintf("robots.txt of %s asks for a Crawl-delay of %s", origin(j.page.URL), duration.Text(delay)))
}

// followRobots enqueues the job that asks for a robots.txt elsewhere, under the
// permits of that host. Pages of the origin wait for it, so it goes before others;
// asynq gives it an ID, since a crawl may ask for the same file again.
func (j *crawlJob) followRobots(ctx context.Context, of, url string, hops int) error {
	next := CrawlFetch{Crawl: j.crawl.Name, URL: url, Start: j.crawl.Start, From: of + "/robots.txt", Hops: hops, Robots: of}
	if err := j.enqueue(ctx, next, scheduler.Priority(scheduler.PriorityHigh)); err != nil {
		return err
	}
	return j.Frontier.HoldRobots(ctx, of, robotsTime)
}

// noRobots is the error of a robots.txt that cannot be had now. A copy counts
// for another hour; without one nothing may be fetched, and no job asks again
// for a while: the error has the page's job wait so long. A job that was canceled, or may not
// call the address, says nothing about the origin.
func (j *crawlJob) noRobots(ctx context.Context, of string, why error) error {
	canceled := errors.Is(ctx.Err(), context.Canceled)
	ctx = context.WithoutCancel(ctx) // it may have ended because of that
	old, ok, err := j.Frontier.Robots(ctx, of)
	if err != nil {
		return err
	}
	if ok { // fresh for the hour that is left of its day
		return j.Frontier.KeepRobots(ctx, of, old.Status, old.Text, 23*time.Hour)
	}
	why = fmt.Errorf("%w: %w", errNoRobots, why)
	if canceled || errors.Is(why, asynq.SkipRetry) {
		return cmp.Or(j.Frontier.ReleaseRobots(ctx, of), why)
	}
	var asked time.Duration
	if status, ok := errors.AsType[*StatusError](why); ok {
		asked = min(status.RetryAfter, throttle.Day)
	}
	hold, err := j.Frontier.FailRobots(ctx, of, asked)
	return cmp.Or(err, j.await(hold, why))
}

// await is the error that has a page's job wait until robots.txt is asked for again, for
// hours and without an attempt. After robotsPatience the job is archived.
func (j *crawlJob) await(hold frontier.RobotsHold, why error) error {
	switch {
	case j.page.Robots != "": // no page, and done
		return why
	case time.Since(hold.Failing) >= robotsPatience:
		return fmt.Errorf("since %s %w: %w", hold.Failing.UTC().Format(time.RFC3339), why, asynq.SkipRetry)
	}
	return putBack(hold.Wait, why.Error())
}

// putBack is the error that puts the job back without a failure.
func putBack(wait time.Duration, why string) error {
	return fmt.Errorf("%s: %w", why, scheduler.RetryAfter(wait))
}

// enqueue enqueues another job of the crawl, unless it has been: in this job's queue,
// and with as many retries.
func (j *crawlJob) enqueue(ctx context.Context, page CrawlFetch, opts ...asynq.Option) error {
	task, err := NewCrawlFetch(page)
	if err != nil {
		return err
	}
	if queue, ok := asynq.GetQueueName(ctx); ok {
		opts = append(opts, asynq.Queue(queue))
	}
	if most, ok := asynq.GetMaxRetry(ctx); ok {
		opts = append(opts, asynq.MaxRetry(most))
	}
	_, err = j.Client.EnqueueContext(ctx, task, opts...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil
	}
	return err
}
