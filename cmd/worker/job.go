package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/results"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
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
  waiting    waits for permits; the lane, its position, its slowest limit and its expected start are shown
  granted    has its permits and is about to start
  active     running
  retry      failed, or put back by its handler; it runs again
  completed  done, and kept until its retention ends
  archived   given up: it failed too often, or can never run

For an http:request the answer to the last attempt is shown: its status, kept headers and body. The last error of a waiting job is the denial.

A finished job without retention is not kept, so its ID is not found.`
}

func (c *jobCommand) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	jobs, err := findJobs(ctx, q, c.ID, c.Queue)
	if err != nil {
		return err
	}
	if err := q.AddEstimates(ctx, jobs); err != nil {
		return err
	}
	for i, job := range jobs {
		attempts, crashes, err := q.DB.Attempts(ctx, job.Queue, job.ID)
		if err != nil {
			return err
		}
		view := newJobView(job)
		view.Crashes = crashes
		for _, a := range attempts {
			view.Last = append(view.Last, attemptView{a.At, cli.Seconds(a.Took), a.Worker, a.Error})
		}
		if c.JSON {
			err = cli.JSON(stdio.Out, view)
		} else {
			fmt.Fprint(stdio.Out, strings.Repeat("\n", min(i, 1)))
			err = cli.Fields(stdio.Out, view.lines())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// jobView is a job in JSON, and as a row of "jobs list".
type jobView struct {
	ID       string            `json:"id"`
	Queue    string            `json:"queue"`
	Type     string            `json:"type"`
	State    string            `json:"state"`
	Schedule *cron.Origin      `json:"schedule,omitempty"`
	Payload  cli.Text          `json:"payload"`
	Headers  map[string]string `json:"headers,omitempty"`
	Group    string            `json:"group,omitempty"`

	Attempts int           `json:"attempts"`
	Last     []attemptView `json:"last_attempts,omitempty"`
	Crashes  int           `json:"crashes,omitempty"`
	Failures int           `json:"failures"`
	MaxRetry int           `json:"max_retry"`
	Error    string        `json:"error,omitempty"`
	Failed   time.Time     `json:"failed,omitzero"`

	Pending   time.Time `json:"pending_since,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Orphaned  bool      `json:"orphaned,omitempty"`
	Next      time.Time `json:"next,omitzero"` // asynq's time; a waiting job starts earlier
	Archived  time.Time `json:"archived,omitzero"`
	Completed time.Time `json:"completed,omitzero"`
	KeptUntil time.Time `json:"kept_until,omitzero"`
	Deadline  time.Time `json:"deadline,omitzero"`
	TimeoutS  float64   `json:"timeout_s,omitempty"`

	Position *positionView `json:"position,omitempty"`
	Result   *cli.Text     `json:"result,omitempty"`

	job       inspect.Job
	when, why string
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

// scheduleText names the schedule that enqueued a job.
func scheduleText(o *cron.Origin) string {
	switch {
	case o == nil:
		return ""
	case o.Triggered:
		return o.Entry + ", run by hand at " + tickText(o.At.Local())
	}
	return o.Entry + ", tick of " + tickText(o.At.Local())
}

func newJobView(job inspect.Job) *jobView {
	v := &jobView{
		ID: job.ID, Queue: job.Queue, Type: job.Type, State: job.State,
		Payload: cli.Text(job.Payload), Headers: job.Headers, Group: job.Group,
		Failures: job.Retried, MaxRetry: job.MaxRetry, Error: job.LastErr, Failed: job.LastFailedAt,
		Orphaned: job.IsOrphaned, Completed: job.CompletedAt, Deadline: job.Deadline, TimeoutS: job.Timeout.Seconds(),
		job: job, when: whenText(job), why: whyText(job),
	}
	if origin, ok := cron.OriginOf(job.ID); ok {
		origin.At = origin.At.UTC()
		v.Schedule = &origin
	}
	if job.Position != nil {
		v.Position = newPositionView(*job.Position)
	}
	switch job.TaskInfo.State {
	case asynq.TaskStatePending:
		if job.Position == nil {
			v.Pending = job.Since
		}
	case asynq.TaskStateActive:
		v.Started = job.Since
	case asynq.TaskStateScheduled, asynq.TaskStateRetry:
		v.Next = job.NextProcessAt
	case asynq.TaskStateArchived:
		v.Archived = job.Since
		if job.LastErr != "" { // asynq does not count the last failure
			v.Failures++
		}
	case asynq.TaskStateCompleted:
		v.KeptUntil = job.CompletedAt.Add(job.Retention)
	}
	v.Attempts = v.Failures
	if job.State == "active" || job.State == "completed" {
		v.Attempts++
	}
	if len(job.Result) > 0 {
		result := cli.Text(job.Result)
		v.Result = &result
	}
	return v
}

func (v *jobView) lines() [][2]string {
	failed, why := "failed", "error"
	switch {
	case v.State == "archived":
		why = "reason"
	case strings.HasPrefix(v.Error, "denied by "): // asynq stores a denial as the last error
		failed, why = "denied", "denial"
	}
	attempts := fmt.Sprintf("%d of %d, %d failed", v.Attempts, v.MaxRetry+1, v.Failures)
	if v.Crashes > 0 {
		attempts += fmt.Sprintf("; its worker died %d times, which does not count", v.Crashes)
	}
	lines := [][2]string{
		{"id", v.ID},
		{"queue", v.Queue},
		{"type", v.Type},
		{"state", v.stateText()},
		{"schedule", scheduleText(v.Schedule)},
		{"group", v.Group},
		{"payload", string(v.Payload)},
		{"attempts", attempts},
	}
	if !v.Failed.IsZero() {
		lines = append(lines, [2]string{failed, cli.DateTime(v.Failed)})
	}
	lines = append(lines, [2]string{why, v.Error})
	if !v.Deadline.IsZero() {
		lines = append(lines, [2]string{"deadline", cli.DateTime(v.Deadline)})
	}
	for _, a := range v.Last {
		lines = append(lines, [2]string{"attempt", a.String()})
	}
	if v.job.Position != nil {
		lines = append(lines, positionLines(*v.job.Position)...)
	}
	if v.Result != nil {
		lines = append(lines, results.ParseAnswer(v.Type, []byte(*v.Result)).Lines()...)
	}
	return lines
}

func (v *jobView) stateText() string {
	switch {
	case v.Position != nil:
		return v.State
	case v.Orphaned:
		return v.State + ", but " + workerGone
	case !v.Pending.IsZero() || !v.Started.IsZero():
		return fmt.Sprintf("%s since %s", v.State, cli.DateTime(v.job.Since))
	case !v.Next.IsZero():
		return fmt.Sprintf("%s, runs in %s", v.State, untilText(time.Until(v.Next)))
	case !v.Completed.IsZero():
		return fmt.Sprintf("%s at %s, kept until %s", v.State, cli.DateTime(v.Completed), cli.DateTime(v.KeptUntil))
	}
	return v.State
}

// positionView is the position of a waiting job in JSON. The start is left out if it is unknown.
type positionView struct {
	Rank           int        `json:"position"`
	LaneLength     int        `json:"lane_length"`
	Lane           []cli.Text `json:"lane"`
	FairnessKey    cli.Text   `json:"fairness_key,omitempty"`
	FairnessWeight int        `json:"fairness_weight,omitempty"`
	Bottleneck     cli.Text   `json:"bottleneck"`
	Since          time.Time  `json:"since"`
	StartsAt       time.Time  `json:"starts_at,omitzero"`
	StartsIn       *float64   `json:"starts_in_s,omitempty"`
	Estimated      bool       `json:"estimated,omitempty"`
}

func newPositionView(p waitdb.Position) *positionView {
	v := &positionView{Rank: p.Rank, LaneLength: p.Total, Bottleneck: cli.Text(p.Bottleneck), Since: p.Since}
	for _, meter := range p.Lane.Meters {
		v.Lane = append(v.Lane, cli.Text(meter))
	}
	if p.Lane.Fair != "" {
		v.FairnessKey, v.FairnessWeight = cli.Text(p.Lane.Fair), p.Lane.Weight
	}
	if p.Known {
		v.StartsAt, v.StartsIn, v.Estimated = p.StartsAt, new(p.StartsIn.Seconds()), p.Estimated
	}
	return v
}

func positionLines(p waitdb.Position) [][2]string {
	var lane []string
	for _, meter := range p.Lane.Meters {
		lane = append(lane, display.Meter(meter))
	}
	if p.Lane.Fair != "" {
		lane = append(lane, fmt.Sprintf("%s of weight %d", p.Lane.Fair, p.Lane.Weight))
	}
	position := fmt.Sprintf("%d of %d", p.Rank, p.Total)
	if p.Granted {
		position = "granted: it is about to start"
	}
	starts := "unknown: a running job must end first, or a limit must be resumed"
	if p.Known || p.AtLeast && p.StartsIn > 0 {
		starts = etaText(forecast.Estimate{Known: p.Known, StartsIn: p.StartsIn, Estimated: p.Estimated, AtLeast: p.AtLeast})
	}
	return [][2]string{
		{"lane", strings.Join(lane, " + ")},
		{"position", position},
		{"bottleneck", display.Meter(p.Bottleneck)},
		{"waited", duration.Text(p.WaitedFor)},
		{"starts", starts},
	}
}
