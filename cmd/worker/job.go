package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/results"
	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler/cron"
)

type jobCommand struct {
	ID    string `arg:"" help:"Id of the job."`
	Queue string `placeholder:"NAME" help:"Only the job of this queue: an id can be in several."`
	JSON  bool   `help:"Print a JSON object for each job of that id."`
}

func (jobCommand) Help() string {
	return `Says all that is known of a job, whatever its state:

  pending    in its queue, and next when a worker is free
  scheduled  not before a time that it was enqueued with
  waiting    for a permit: its lane, its position there, the limit that it waits longest for, and when it is expected to run
  granted    its permits are reserved, and it is on its way
  active     running
  retry      failed, or put back by its handler; it comes again
  completed  done, and kept as long as its retention
  archived   given up: it failed too often, or can never run

Of an http:request the answer to the last attempt is shown, if there was one: status, kept headers and body. The last error of a waiting job is the denial.

A job without retention is forgotten when it is done; there is no job of its id then.`
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
		view := newJobView(job)
		list, crashes, err := q.DB.Attempts(ctx, job.Queue, job.ID)
		if err != nil {
			return err
		}
		view.tell(list, crashes)
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

type jobView struct {
	ID       string            `json:"id"`
	Queue    string            `json:"queue"`
	Type     string            `json:"type"`
	State    string            `json:"state"`
	Schedule *cron.Origin      `json:"schedule,omitempty"`
	Payload  cli.Text          `json:"payload"`
	Headers  map[string]string `json:"headers,omitempty"`
	Group    string            `json:"group,omitempty"`

	Attempts int       `json:"attempts"`
	Last     []ended   `json:"last_attempts,omitempty"`
	Crashes  int       `json:"crashes,omitempty"`
	Failures int       `json:"failures"`
	MaxRetry int       `json:"max_retry"`
	Error    string    `json:"error,omitempty"`
	Failed   time.Time `json:"failed,omitzero"`

	Pending   time.Time `json:"pending_since,omitzero"`
	Started   time.Time `json:"started,omitzero"`
	Orphaned  bool      `json:"orphaned,omitempty"`
	Next      time.Time `json:"next,omitzero"` // as asynq has it: a waiting job is called before
	Archived  time.Time `json:"archived,omitzero"`
	Completed time.Time `json:"completed,omitzero"`
	KeptUntil time.Time `json:"kept_until,omitzero"`
	Deadline  time.Time `json:"deadline,omitzero"`
	TimeoutS  float64   `json:"timeout_s,omitempty"`

	Place  *place    `json:"place,omitempty"`
	Result *cli.Text `json:"result,omitempty"`
}

// ended is how an attempt ended, in JSON.
type ended struct {
	At     time.Time `json:"at"`
	TookS  float64   `json:"took_s,omitempty"`
	Worker string    `json:"worker,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// tell adds how its last attempts ended, once one has failed.
func (v *jobView) tell(list []asynqdb.Attempt, crashes int) {
	v.Crashes = crashes
	for _, a := range list {
		v.Last = append(v.Last, ended{a.At, a.Took.Seconds(), a.Worker, a.Error})
	}
}

func (e ended) line() [2]string {
	text := "done"
	if e.Error != "" {
		text = "failed: " + e.Error
	}
	if e.TookS > 0 {
		text += fmt.Sprintf(", after %s", duration.Text(time.Duration(e.TookS*float64(time.Second))))
	}
	if e.Worker != "" {
		text += " on " + e.Worker
	}
	return [2]string{"attempt", dateTime(e.At) + " " + text}
}

// scheduleText names the schedule that enqueued a job, and says why.
func scheduleText(o *cron.Origin) string {
	switch {
	case o == nil:
		return ""
	case o.Triggered:
		return fmt.Sprintf("%s, run by hand at %s", o.Entry, o.At.Local().Format(tickFormat))
	}
	return fmt.Sprintf("%s, tick of %s", o.Entry, o.At.Local().Format(tickFormat))
}

func newJobView(job inspect.Job) *jobView {
	v := &jobView{
		ID: job.ID, Queue: job.Queue, Type: job.Type, State: job.State,
		Payload: cli.Text(job.Payload), Headers: job.Headers, Group: job.Group,
		Failures: job.Retried, MaxRetry: job.MaxRetry, Error: job.LastErr, Failed: job.LastFailedAt,
		Orphaned: job.IsOrphaned, Completed: job.CompletedAt, Deadline: job.Deadline, TimeoutS: job.Timeout.Seconds(),
	}
	if origin, ok := cron.OriginOf(job.ID); ok {
		origin.At = origin.At.UTC()
		v.Schedule = &origin
	}
	if job.Position != nil {
		v.Place = newPlace(*job.Position)
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
		if job.LastErr != "" { // the last failure archived it, which asynq does not count as a retry
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
	lines := [][2]string{
		{"id", v.ID},
		{"queue", v.Queue},
		{"type", v.Type},
		{"state", v.stateText()},
		{"schedule", scheduleText(v.Schedule)},
		{"group", v.Group},
		{"payload", string(v.Payload)},
		{"attempts", v.attemptsText()},
		{v.failedName(), dateTime(v.Failed)},
		{v.errorName(), v.Error},
		{"deadline", dateTime(v.Deadline)},
	}
	for _, a := range v.Last {
		lines = append(lines, a.line())
	}
	lines = append(lines, v.Place.lines()...)
	if v.Result != nil {
		lines = append(lines, results.ParseAnswer(v.Type, []byte(*v.Result)).Lines()...)
	}
	return lines
}

// attemptsText is how many attempts there were, and how often the worker died beside them.
func (v *jobView) attemptsText() string {
	text := fmt.Sprintf("%d of %d, %d failed", v.Attempts, v.MaxRetry+1, v.Failures)
	if v.Crashes > 0 {
		text += fmt.Sprintf("; its worker died %d times, which was forgiven", v.Crashes)
	}
	return text
}

func (v *jobView) errorName() string {
	switch {
	case v.State == asynq.TaskStateArchived.String():
		return "reason"
	case strings.HasPrefix(v.Error, "denied by "):
		return "denial"
	}
	return "error"
}

// failedName is what the last error came with: asynq notes a denial's time as it
// does that of a failure.
func (v *jobView) failedName() string {
	if v.errorName() == "denial" {
		return "denied"
	}
	return "failed"
}

func (v *jobView) stateText() string {
	switch {
	case v.Place != nil:
		return v.State
	case !v.Pending.IsZero():
		return fmt.Sprintf("%s since %s", v.State, dateTime(v.Pending))
	case v.Orphaned:
		return v.State + ", but its worker is gone: another will take it"
	case !v.Started.IsZero():
		return fmt.Sprintf("%s since %s", v.State, dateTime(v.Started))
	case !v.Next.IsZero():
		return fmt.Sprintf("%s, runs in %s", v.State, in(time.Until(v.Next)))
	case !v.Completed.IsZero():
		return fmt.Sprintf("%s at %s, kept until %s", v.State, dateTime(v.Completed), dateTime(v.KeptUntil))
	}
	return v.State
}

// place is where a waiting job stands, in JSON. The expected time is left out
// where nobody knows it.
type place struct {
	Rank       int        `json:"position"`
	LaneLength int        `json:"lane_length"`
	Lane       []cli.Text `json:"lane"`
	Fair       cli.Text   `json:"fair,omitempty"`
	Weight     int        `json:"weight,omitempty"` // of that key
	Binding    cli.Text   `json:"binding"`
	Since      time.Time  `json:"since"`
	Expected   time.Time  `json:"expected,omitzero"`
	ExpectedIn *float64   `json:"expected_in_s,omitempty"`
	About      bool       `json:"about,omitempty"` // whether that is an estimate

	waitdb.Position `json:"-"`
}

func newPlace(p waitdb.Position) *place {
	j := &place{
		Rank: p.Rank, LaneLength: p.Total, Binding: cli.Text(p.Bottleneck), Since: p.Since, Position: p,
	}
	for _, meter := range p.Lane.Meters {
		j.Lane = append(j.Lane, cli.Text(meter))
	}
	if p.Lane.Fair != "" {
		j.Fair, j.Weight = cli.Text(p.Lane.Fair), p.Lane.Weight
	}
	if p.Known {
		in := p.StartsIn.Seconds()
		j.Expected, j.ExpectedIn, j.About = p.StartsAt, &in, p.Estimated
	}
	return j
}

func (p *place) lines() [][2]string {
	if p == nil {
		return nil
	}
	var lane []string
	for _, meter := range p.Position.Lane.Meters {
		lane = append(lane, display.Meter(meter))
	}
	position := fmt.Sprintf("%d of %d", p.Rank, p.LaneLength)
	if p.Granted {
		position = "granted: it is on its way"
	}
	expected := "nobody knows: a running job must end, or a limit be resumed"
	if p.Known || p.AtLeast && p.StartsIn > 0 {
		expected = lastIn(forecast.Estimate{Known: p.Known, StartsIn: p.StartsIn, Estimated: p.Position.Estimated, AtLeast: p.AtLeast})
	}
	if l := p.Position.Lane; l.Fair != "" {
		lane = append(lane, fmt.Sprintf("%s of weight %d", l.Fair, l.Weight))
	}
	return [][2]string{
		{"lane", strings.Join(lane, " + ")},
		{"position", position},
		{"binding", display.Meter(p.Position.Bottleneck)},
		{"waits", duration.Text(p.WaitedFor)},
		{"expected", expected},
	}
}
