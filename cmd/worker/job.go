package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/throttle"
)

type jobCommand struct {
	ID    string `arg:"" help:"Id of the job."`
	Queue string `placeholder:"NAME" help:"Only the job of this queue: an id can be in several."`
	JSON  bool   `help:"Print a JSON object for each job of that id."`
}

// Help is the manual of "worker job".
func (jobCommand) Help() string {
	return `Says all that is known of a job, whatever its state:

  pending    in its queue, and next when a worker is free
  scheduled  not before a time that it was enqueued with
  waiting    for a permit: its lane, its position there, the limit that it waits longest for, and when it is expected to run
  called     its permits are reserved, and it is on its way
  active     running
  retry      failed, or put back by its handler; it comes again
  completed  done, and kept as long as its retention
  archived   given up: it failed too often, or can never run

Of an http:request the answer to the last attempt is shown, if there was one: status, kept headers and body. The last error of a waiting job is the denial.

A job without retention is forgotten when it is done; there is no job of its id then.`
}

// Run implements "worker job".
func (c *jobCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	q, err := connectQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.close()
	jobs, err := q.find(c.ID, c.Queue)
	if err != nil {
		return err
	}
	for i, job := range jobs {
		view, err := q.view(ctx, job)
		if err != nil {
			return err
		}
		if c.JSON {
			err = cli.JSON(stdio.Out, view)
		} else {
			if i > 0 {
				fmt.Fprintln(stdio.Out)
			}
			err = cli.Fields(stdio.Out, view.lines())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// find lists the jobs of an id, in whatever queues, or in the one that is named.
// There is at least one.
func (q *queues) find(id, queue string) ([]*asynq.TaskInfo, error) {
	names, err := q.names(queue)
	if err != nil {
		return nil, err
	}
	var jobs []*asynq.TaskInfo
	for _, name := range names {
		job, err := q.inspector.GetTaskInfo(name, id)
		switch {
		case err == nil:
			jobs = append(jobs, job)
		case !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound):
			return nil, err
		}
	}
	if len(jobs) == 0 {
		where := ""
		if queue != "" {
			where = " in queue " + queue
		}
		return nil, fmt.Errorf("there is no job %s%s: it never was, was deleted, or is done and had no retention", id, where)
	}
	return jobs, nil
}

// names lists the queues, or the one that is named if there is such a queue.
func (q *queues) names(queue string) ([]string, error) {
	names, err := q.inspector.Queues()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	if queue == "" {
		return names, nil
	}
	if !slices.Contains(names, queue) {
		return nil, fmt.Errorf("there is no queue %s", queue)
	}
	return []string{queue}, nil
}

// view is all that is known of a job.
func (q *queues) view(ctx context.Context, job *asynq.TaskInfo) (*jobView, error) {
	v := newJobView(job)
	if job.State == asynq.TaskStateRetry || job.State == asynq.TaskStatePending {
		place, waits, err := q.limiter.Waiting(ctx, throttle.JobID{Queue: job.Queue, ID: job.ID})
		if err != nil {
			return nil, err
		}
		if waits {
			v.standsAt(place)
		}
	}
	switch job.State {
	case asynq.TaskStatePending:
		since, err := q.pendingSince(ctx, job)
		v.Pending = since
		return v, err
	case asynq.TaskStateActive:
		started, err := q.started(job)
		v.Started = started
		return v, err
	}
	return v, nil
}
