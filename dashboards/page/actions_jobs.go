package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

// An action on all jobs of a filter takes mostAtOnce of them, and atOnce of time: a browser
// waits for the answer.
const (
	mostAtOnce = 10_000
	atOnce     = 20 * time.Second
)

// jobActions are the actions on jobs, in the order of their buttons.
var jobActions = []string{"run", "cancel", "archive", "delete"}

func doJobs(verb string, a *inspect.Act, says string) *action {
	do := func(ctx context.Context, p *Page, f url.Values) error {
		jobs, filter, err := p.findJobs(ctx, a, f)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, atOnce)
		defer cancel()
		done, err := p.queues.Do(ctx, a, filter, jobs)
		switch {
		case err != nil && done > 0:
			return fmt.Errorf("%s %s, and not the others: %w", a.Done, plural(done, "job"), err)
		case err == nil && done == 0:
			return errors.New("nothing was done: what was meant has changed meanwhile")
		}
		return err
	}
	return &action{Verb: verb, Says: says, Grave: a == inspect.Delete, jobs: a, do: do}
}

// findJobs lists the jobs that a form means. One that it names is there, and it can be done
// to it.
func (p *Page) findJobs(ctx context.Context, a *inspect.Act, f url.Values) ([]throttle.JobID, inspect.Filter, error) {
	ctx, cancel := context.WithTimeout(ctx, atOnce)
	defer cancel()
	if f.Get("id") != "" {
		job, err := p.queues.Job(ctx, throttle.JobID{Queue: f.Get("queue"), ID: f.Get("id")})
		if err == nil {
			if not := a.Not(job.State); not != "" {
				err = fmt.Errorf("the job is %s: %s", job.State, not)
			}
		}
		if err != nil {
			return nil, inspect.Filter{}, err
		}
		return []throttle.JobID{job.JobID()}, inspect.Filter{Queue: job.Queue}, nil
	}
	filter, err := filterOf(ctx, p, f)
	if err == nil && len(filter.States) == 0 {
		err = &throttle.FieldError{Field: "state", Value: "of any sort", Want: "want some of " + fmt.Sprint(a.To)}
	}
	if err = cmp.Or(err, a.Check(filter)); err != nil {
		return nil, filter, err
	}
	jobs, err := p.queues.Find(ctx, a, filter, mostAtOnce)
	return jobs, filter, err
}

func (p *Page) whichJobs(ctx context.Context, a *inspect.Act, f url.Values) (string, error) {
	jobs, _, err := p.findJobs(ctx, a, f)
	switch {
	case err != nil || f.Get("id") != "":
		return short(whatOf(f)), err
	case len(jobs) == 0:
		return "no job", errors.New("no job is meant")
	case len(jobs) == mostAtOnce:
		return fmt.Sprintf("the first %s: %s", plural(len(jobs), "job"), short(filterText(f))), nil
	}
	return fmt.Sprintf("%s: %s", plural(len(jobs), "job"), short(filterText(f))), nil
}

func ofQueue(do func(*inspect.Queues, context.Context, string) error) func(context.Context, *Page, url.Values) error {
	return func(ctx context.Context, p *Page, f url.Values) error {
		return do(p.queues, ctx, f.Get("queue"))
	}
}

func removeQueue(ctx context.Context, p *Page, f url.Values) error {
	if _, err := p.queues.Names(ctx, f.Get("queue")); err != nil {
		return err
	}
	_, err := p.queues.Remove(ctx, f.Get("queue"))
	return err
}
