package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/jobspec"
)

type archivedCommand struct {
	List   archivedList   `cmd:"" help:"List archived jobs, the newest first."`
	Retry  archivedRetry  `cmd:"" help:"Run archived jobs once more."`
	Delete archivedDelete `cmd:"" help:"Delete archived jobs."`
}

// filter selects archived jobs.
type filter struct {
	Queue string        `placeholder:"NAME" help:"Only of this queue."`
	Type  string        `placeholder:"TYPE" help:"Only of this type."`
	Error string        `placeholder:"TEXT" help:"Only those whose last error contains this text."`
	Older time.Duration `placeholder:"DURATION" help:"Only those that were archived longer ago than this."`
}

// matches reports whether a job is meant.
func (f filter) matches(job *asynq.TaskInfo) bool {
	return (f.Type == "" || job.Type == f.Type) &&
		strings.Contains(job.LastErr, f.Error) &&
		(f.Older == 0 || time.Since(job.LastFailedAt) > f.Older)
}

// find lists the jobs that are meant, the newest first.
func (f filter) find(ctx context.Context, q *inspect.Queues) ([]*asynq.TaskInfo, error) {
	if f.Older < 0 {
		return nil, cli.Usagef("--older %s: want a time up to now, such as 24h", f.Older)
	}
	return q.Archived(ctx, f.Queue, f.matches)
}

type archivedList struct {
	filter
	JSON bool `help:"Print a JSON array."`
}

// Run implements "worker archived list".
func (c *archivedList) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	q, err := openQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.Close()
	jobs, err := c.find(ctx, q)
	if err != nil {
		return err
	}
	if c.JSON {
		shown := make([]archivedJob, len(jobs))
		for i, job := range jobs {
			shown[i] = newArchivedJob(job)
		}
		return cli.JSON(stdio.Out, shown)
	}
	if len(jobs) == 0 {
		fmt.Fprintln(stdio.Out, "no archived job matches")
		return nil
	}
	var rows [][]string
	for _, job := range jobs {
		reason := strings.Join(strings.Fields(job.LastErr), " ")
		rows = append(rows, []string{job.ID, job.Queue, job.Type, job.LastFailedAt.Local().Format(time.DateTime), reason})
	}
	return cli.Table(stdio.Out, []string{"ID", "QUEUE", "TYPE", "ARCHIVED", "REASON"}, rows)
}

// archivedJob is a job in JSON.
type archivedJob struct {
	ID       string    `json:"id"`
	Queue    string    `json:"queue"`
	Type     string    `json:"type"`
	Payload  cli.Text  `json:"payload"`
	Archived time.Time `json:"archived"`
	Failures int       `json:"failures"`
	Error    string    `json:"error"`
}

func newArchivedJob(job *asynq.TaskInfo) archivedJob {
	return archivedJob{job.ID, job.Queue, job.Type, cli.Text(job.Payload), job.LastFailedAt, failures(job), job.LastErr}
}

// failures counts as the log does. The last failure archived the job, which
// asynq does not count as a retry.
func failures(job *asynq.TaskInfo) int {
	if job.LastErr == "" { // archived by hand before it ever ran
		return job.Retried
	}
	return job.Retried + 1
}

// selection names archived jobs by their ids or by a filter.
type selection struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of the jobs, instead of a filter; with --queue those of this queue."`
	filter
	All bool `help:"All archived jobs."`
	confirming
}

func (s selection) find(ctx context.Context, q *inspect.Queues) ([]*asynq.TaskInfo, error) {
	switch {
	case len(s.IDs) == 0 && s.filter == filter{} && !s.All:
		return nil, cli.Usagef("which jobs? want ids, a filter such as --queue NAME, or --all")
	case len(s.IDs) > 0 && (s.filter != filter{Queue: s.Queue} || s.All):
		return nil, cli.Usagef("ids go with no filter but --queue")
	case len(s.IDs) == 0:
		return s.filter.find(ctx, q)
	}
	var jobs []*asynq.TaskInfo
	for _, id := range s.IDs {
		job, err := findJob(q, id, s.Queue)
		if err == nil && job.State != asynq.TaskStateArchived {
			err = fmt.Errorf("job %s is not archived but %s", id, job.State)
		}
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

type archivedRetry struct{ selection }

// Run implements "worker archived retry".
func (c *archivedRetry) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.each(ctx, g, stdio, "retried", func(q *inspect.Queues, _ context.Context, job *asynq.TaskInfo) error {
		return q.Inspector.RunTask(job.Queue, job.ID)
	})
}

type archivedDelete struct{ selection }

// Run implements "worker archived delete".
func (c *archivedDelete) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.each(ctx, g, stdio, "deleted", func(q *inspect.Queues, _ context.Context, job *asynq.TaskInfo) error {
		return q.Inspector.DeleteTask(job.Queue, job.ID)
	})
}

// each does something to every job that is meant, and says how many they were.
// One that has left the archive meanwhile is left alone: asynq would delete it wherever
// it is.
func (s selection) each(ctx context.Context, g *cli.Globals, stdio cli.IO, what string, do func(*inspect.Queues, context.Context, *asynq.TaskInfo) error) error {
	q, err := openQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.Close()
	jobs, err := s.find(ctx, q)
	if err != nil {
		return err
	}
	did := confirmation{Done: what, Jobs: new(int), Queue: cli.Text(s.Queue)}
	for _, job := range jobs {
		var now *asynq.TaskInfo
		if now, err = q.Inspector.GetTaskInfo(job.Queue, job.ID); err == nil {
			if now.State != asynq.TaskStateArchived {
				continue
			}
			err = do(q, ctx, job)
		}
		if errors.Is(err, asynq.ErrTaskNotFound) {
			err = nil
			continue
		}
		if err != nil {
			break
		}
		if *did.Jobs++; *did.Jobs == 1 && len(jobs) == 1 {
			did.Queue, did.Job = cli.Text(job.Queue), cli.Text(job.ID)
		}
	}
	if *did.Jobs > 0 {
		err = errors.Join(err, q.Limiter.Note(ctx, did.noted()))
	}
	return errors.Join(s.say(stdio.Out, did, what+" "+jobspec.Count(*did.Jobs)), err)
}
