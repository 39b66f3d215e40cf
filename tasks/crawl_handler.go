package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/tasks/frontier"
	"github.com/headgate/headgate/tasks/links"
	"github.com/headgate/headgate/tasks/robots"
)

// ProcessTask fetches the page and enqueues what it leads to. A job that asks for a
// robots.txt has no URL of the crawl to claim: it keeps the answer for those that
// have, and is done even if there was none.
func (h *CrawlHandler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	j, err := h.job(task)
	if err != nil {
		return malformed(err)
	}
	if h.HTTP == nil || h.Frontier == nil || h.Client == nil {
		return notCalled{fmt.Errorf("this worker runs no crawls: %w", asynq.SkipRetry)}
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
		err = keepResult(ctx, task, j.result, err)
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
	j := &crawlJob{CrawlHandler: h, page: page, robots: map[string]*robots.File{}}
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
