package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/cmd/internal/results"
	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler/cron"
)

type jobCommand struct {
	ID    string `arg:"" help:"ID of the job."`
	Queue string `placeholder:"NAME" help:"Only in this queue. The same ID can exist in several queues."`
	JSON  bool   `help:"Print a JSON object for each job with this ID."`
}

func (jobCommand) Help() string {
	return `Shows everything about a job, in any state:

  pending    in its queue, until a worker is free
  scheduled  starts no earlier than the time it was enqueued with
  waiting    waits for permits; its lane, its position, its slowest limit and its expected start are shown
  granted    has its permits and is about to start
  active     running
  retry      failed, or put back by its handler; it runs again
  completed  done, and kept until its retention ends
  archived   given up: it failed too often, or can never run

For an http:request the answer to the last attempt is shown: its status, kept headers and body. The error of a waiting job is the denial.

A finished job without retention is not kept, so its ID is not found.`
}

func (c *jobCommand) Run(ctx context.Context, conn *connection, q *inspect.Queues, stdio cli.IO) error {
	jobs, err := findJobs(ctx, q, c.ID, c.Queue)
	if err == nil {
		err = q.AddEstimates(ctx, jobs)
	}
	for i := 0; err == nil && i < len(jobs); i++ {
		err = c.print(ctx, conn.conf, q, jobs[i], stdio)
	}
	return err
}

func (c *jobCommand) print(ctx context.Context, conf *config.Config, q *inspect.Queues, job inspect.Job, stdio cli.IO) error {
	attempts, crashes, err := q.DB.Attempts(ctx, job.Queue, job.ID)
	if err != nil {
		return err
	}
	view := newJobView(job)
	view.Crashes = crashes
	if job.State != "completed" {
		view.Retention = cli.Seconds(cmp.Or(job.Retention, conf.Tasks[job.Type].Retention))
	}
	for _, a := range attempts {
		view.Last = append(view.Last, attemptView{a.At, cli.Seconds(a.Took), a.Worker, a.Error})
	}
	if c.JSON {
		return cli.JSON(stdio.Out, view)
	}
	view.Result = nil // printed below, as the lines of the answer
	if err = cli.Print(stdio.Out, false, view); err == nil && len(job.Result) > 0 {
		err = cli.Fields(stdio.Out, results.ParseResponse(job.Type, job.Result).Lines())
	}
	fmt.Fprintln(stdio.Out)
	return err
}

// jobView is a job as "job" prints it, and a row of "jobs list".
type jobView struct {
	ID        string            `json:"id"`
	Queue     string            `json:"queue"`
	Type      string            `json:"type"`
	State     string            `json:"state"`
	Since     time.Time         `json:"since,omitzero"` // when the job came into its state
	Note      string            `json:"note,omitempty"`
	Next      time.Time         `json:"next,omitzero"`
	KeptUntil time.Time         `json:"kept_until,omitzero"`
	Schedule  string            `json:"schedule,omitempty"`
	Tick      time.Time         `json:"tick,omitzero"` // the schedule's tick, or the time of "schedules run"
	Payload   cli.Value         `json:"payload"`
	Row       jobspec.Row       `json:"row,omitzero"` // from which "enqueue" made the job
	Headers   map[string]string `json:"headers,omitempty"`
	Group     string            `json:"group,omitempty"`

	Attempts int           `json:"attempts"`
	Failures int           `json:"failures"`
	Crashes  int           `json:"crashes,omitempty"` // number of workers that crashed while they ran the job; a crash is no failure
	Refused  int           `json:"refused,omitempty"` // number of rate limits in a row that the upstream has answered
	MaxRetry int           `json:"max_retry"`
	Error    string        `json:"error,omitempty"`
	Failed   time.Time     `json:"failed,omitzero"`
	Last     []attemptView `json:"last_attempts,omitempty"`
	Deadline time.Time     `json:"deadline,omitzero"`
	Timeout  cli.Seconds   `json:"timeout_s,omitempty"`
	// Retention is the job's own, or else that of this config. It is 0 for a completed job.
	Retention cli.Seconds `json:"retention_s,omitempty"`

	*positionView
	Result *cli.Value `json:"result,omitempty"`

	why string // the column WHY of the list
}

type attemptView struct {
	At     time.Time   `json:"at"`
	Took   cli.Seconds `json:"took_s,omitempty"`
	Worker string      `json:"worker,omitempty"`
	Error  string      `json:"error,omitempty"`
}

func (a attemptView) String() string {
	text := cli.DateTime(a.At) + " done"
	if a.Error != "" {
		text = cli.DateTime(a.At) + " failed: " + a.Error
	}
	if a.Took > 0 {
		text += ", after " + a.Took.String()
	}
	if a.Worker != "" {
		text += " on " + a.Worker
	}
	return text
}

func newJobView(job inspect.Job) *jobView {
	v := &jobView{
		ID: job.ID, Queue: job.Queue, Type: job.Type, State: job.State, Since: job.Since,
		Payload: cli.Value(job.Payload), Row: jobspec.RowOf(job.Headers), Headers: job.Headers, Group: job.Group,
		Failures: job.Retried, Refused: asynqdb.Refusals(job.JobID(), job.Headers), MaxRetry: job.MaxRetry, Error: job.LastErr, Failed: job.LastFailedAt,
		Deadline: job.Deadline, Timeout: cli.Seconds(job.Timeout),
	}
	if origin, ok := cron.OriginOf(job.ID); ok {
		v.Schedule, v.Tick = origin.Entry, origin.At.UTC()
	}
	if job.Position != nil {
		v.positionView = newPositionView(*job.Position)
	}
	if job.IsOrphaned {
		v.Note = "its worker is gone: another worker will take it"
	}
	v.why = v.Note
	switch job.State {
	case inspect.Waiting:
		v.why = fmt.Sprintf("waits for %s, starts %s", v.Bottleneck, v.StartsIn)
	case "scheduled":
		v.Next = job.NextProcessAt
	case "retry":
		v.Next, v.why = job.NextProcessAt, strings.Join(strings.Fields(job.LastErr), " ")
	case "archived":
		if v.why = strings.Join(strings.Fields(job.LastErr), " "); job.LastErr != "" {
			v.Failures++ // asynq does not count the last failure
		}
	case "completed":
		v.KeptUntil = job.CompletedAt.Add(job.Retention)
	}
	v.Attempts = v.Failures
	if job.State == "active" || job.State == "completed" {
		if strings.HasPrefix(v.Error, "denied by ") {
			v.Error = "" // the job has its permits since
		}
		v.Attempts++
	}
	if len(job.Result) > 0 {
		v.Result = new(cli.Value(job.Result))
	}
	return v
}

// positionView is the position of a waiting job.
type positionView struct {
	Rank           int         `json:"position"`
	LaneLength     int         `json:"lane_length"`
	Lane           []meterName `json:"lane"`
	FairnessKey    string      `json:"fairness_key,omitempty"`
	FairnessWeight int         `json:"fairness_weight,omitempty"`
	Bottleneck     meterName   `json:"bottleneck"`
	StartsIn       cli.ETA     `json:"starts_in_s"`
	Estimated      bool        `json:"estimated,omitempty"`
}

// meterName is "limit|key" in JSON, and "limit of key" in text.
type meterName string

func (m meterName) String() string { return display.Meter(string(m)) }

func newPositionView(p waitdb.Position) *positionView {
	v := &positionView{
		Rank: p.Rank, LaneLength: p.Total, Bottleneck: meterName(p.Bottleneck), Estimated: p.Known && p.Estimated,
		StartsIn: cli.ETA(forecast.OfPosition(p)),
	}
	for _, meter := range p.Lane.Meters {
		v.Lane = append(v.Lane, meterName(meter))
	}
	if p.Lane.Fair != "" {
		v.FairnessKey, v.FairnessWeight = p.Lane.Fair, p.Lane.Weight
	}
	return v
}

// findJobs returns the jobs with an ID. It returns an error if there is none. An empty queue means
// all queues.
func findJobs(ctx context.Context, q *inspect.Queues, id, queue string) ([]inspect.Job, error) {
	jobs, err := q.FindByID(ctx, id, queue)
	if err == nil && len(jobs) == 0 {
		where := ""
		if queue != "" {
			where = " in queue " + queue
		}
		err = fmt.Errorf("job %s not found%s: it may have finished without retention, or been deleted", id, where)
	}
	return jobs, err
}
