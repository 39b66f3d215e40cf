package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/tasks/frontier"
	"github.com/headgate/headgate/tasks/internal/links"
	"github.com/headgate/headgate/tasks/internal/robots"
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

// job is what a task asks for, in the form in which the crawl knows URLs.
func (h *CrawlHandler) job(task *asynq.Task) (*crawlJob, error) {
	page, err := parse[CrawlFetch](task.Payload())
	if err != nil {
		return nil, err
	}
	j := &crawlJob{CrawlHandler: h, page: page, robots: map[string]*robots.File{}}
	j.page.URL, err = links.Canonical("", page.URL)
	j.hosts = j.page.Hosts()
	j.crawl = frontier.Crawl{Name: page.Crawl, Start: cmp.Or(page.Start, time.Now().UnixMicro())}
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
	answer, err := j.claim(ctx, false)
	if err != nil || answer != frontier.Take {
		return err
	}
	return h.Frontier.Done(ctx, j.crawl, j.page.URL, frontier.Failed, 0)
}

// Tidy removes what processes have left in SaveDir that died while they saved a body: see
// HTTPHandler.Tidy.
func (h *CrawlHandler) Tidy() error { return (&HTTPHandler{SaveDir: h.SaveDir}).Tidy() }

// do goes through what a job does, step by step.
func (j *crawlJob) do(ctx context.Context) error {
	file, err := j.knownRobots(ctx, origin(j.page.URL))
	if err != nil {
		return err
	}
	answer, err := j.claim(ctx, file != nil && file.Allowed(j.page.URL))
	switch {
	case err != nil:
		return err
	case answer == frontier.Over:
		j.result.Outcome = "over"
		return nil
	case answer == frontier.Full:
		j.result.Outcome, j.result.Reason = "beyond", j.full()
		return nil
	case answer != frontier.Take:
		j.result.Outcome = "seen"
		return nil
	}
	if file == nil {
		if file, err = j.robotsFor(ctx); err != nil {
			return err
		}
	}
	if !file.Allowed(j.page.URL) {
		j.result.Outcome, j.result.Reason = "disallowed", "robots.txt of "+origin(j.page.URL)+" disallows it"
		return j.Frontier.Done(ctx, j.crawl, j.page.URL, frontier.Disallowed, 0)
	}
	return j.fetch(ctx, file)
}

// claim takes the URL. After it the job has its crawl. It returns one of the answers of
// package frontier. Allowed is whether robots.txt is known to allow the URL.
func (j *crawlJob) claim(ctx context.Context, allowed bool) (string, error) {
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	crawl, answer, err := j.Frontier.Claim(ctx, frontier.Claim{
		Crawl: j.crawl, URL: j.page.URL, From: j.page.From,
		Job: queue + "/" + id, Allowed: allowed,
	})
	if err == nil {
		j.crawl = crawl
	}
	return answer, err
}
