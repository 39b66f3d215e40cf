package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/worker"
	"github.com/headgate/headgate/scheduler/cron"
)

type schedulesCommand struct {
	List   schedulesList   `cmd:"" help:"List all schedules, with the last and the next tick of each."`
	Next   schedulesNext   `cmd:"" help:"List the next ticks of all schedules, in their zones and in local time."`
	Run    schedulesRun    `cmd:"" help:"Enqueue a schedule's job now, beside its ticks."`
	Pause  schedulesPause  `cmd:"" help:"Keep a schedule from ticking until it is resumed."`
	Resume schedulesResume `cmd:"" help:"End a pause. The ticks during it are gone."`
}

func withRunner(ctx context.Context, g *cli.Globals, do func(*cron.Runner) error) error {
	c, rdb, err := open(ctx, g)
	if err != nil {
		return err
	}
	defer rdb.Close()
	runner, err := worker.Schedules(rdb, c, nil)
	if err != nil {
		return err
	}
	return do(runner)
}

type schedulesList struct {
	JSON bool `help:"Print a JSON array."`
}

type scheduleStatus struct {
	Name     string     `json:"name"`
	Cron     string     `json:"cron"`
	Zone     string     `json:"zone"`
	Task     string     `json:"task"`
	State    string     `json:"state"`
	Next     *time.Time `json:"next"`
	Last     *time.Time `json:"last"`
	Outcome  string     `json:"outcome"`
	Enqueued int64      `json:"enqueued"`
	Skipped  int64      `json:"skipped"`
	Failed   int64      `json:"failed"`
}

func newScheduleStatus(s cron.Status) scheduleStatus {
	status := scheduleStatus{
		Name: s.Entry.Name, Cron: s.Entry.Cron, Zone: zoneName(s.Entry.Zone), Task: s.Entry.Type, State: "active",
		Outcome: s.Outcome, Enqueued: s.Enqueued, Skipped: s.Skipped, Failed: s.Failed,
	}
	switch {
	case s.Entry.Disabled:
		status.State = "disabled"
	case s.Paused:
		status.State = "paused"
	}
	if len(s.Next) > 0 {
		status.Next = &s.Next[0]
	}
	if !s.Last.IsZero() {
		status.Last = &s.Last
	}
	return status
}

func (c *schedulesList) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return withRunner(ctx, g, func(runner *cron.Runner) error {
		list, err := runner.List(ctx, 1)
		if err != nil {
			return err
		}
		statuses := make([]scheduleStatus, len(list))
		var rows [][]string
		for i, s := range list {
			status := newScheduleStatus(s)
			statuses[i] = status
			rows = append(rows, []string{
				status.Name, status.Cron, status.Zone, status.Task, status.State, clock(status.Next), clock(status.Last),
				status.Outcome, fmt.Sprintf("%d/%d/%d", s.Enqueued, s.Skipped, s.Failed),
			})
		}
		if c.JSON {
			return cli.JSON(stdio.Out, statuses)
		}
		if len(rows) == 0 {
			return printNoSchedules(stdio.Out)
		}
		return cli.Table(stdio.Out, []string{"NAME", "CRON", "ZONE", "TASK", "STATE", "NEXT", "LAST", "OUTCOME", "ENQUEUED/SKIPPED/FAILED"}, rows)
	})
}

// printNoSchedules says how to add one, as no command does.
func printNoSchedules(w io.Writer) error {
	_, err := fmt.Fprintln(w, `The config has no schedules. One is, for instance:

schedules:
  nightly: {cron: "30 2 * * *", zone: Europe/London, task: "http:request", payload: {url: "https://example.com/"}}`)
	return err
}

type oneSchedule struct {
	Name string `arg:"" help:"Name of the schedule."`
	confirming
}

// change does one thing to the schedule and says so.
func (c *oneSchedule) change(ctx context.Context, g *cli.Globals, stdio cli.IO, done string, do func(*cron.Runner, context.Context, string) error) error {
	return withRunner(ctx, g, func(runner *cron.Runner) error {
		if err := do(runner, ctx, c.Name); err != nil {
			return err
		}
		return c.say(stdio.Out, confirmation{Done: done, Schedule: c.Name}, done+" "+c.Name)
	})
}

type schedulesRun struct{ oneSchedule }

func (c *schedulesRun) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return withRunner(ctx, g, func(runner *cron.Runner) error {
		id, err := runner.Trigger(ctx, c.Name)
		if err != nil {
			return err
		}
		return c.say(stdio.Out, confirmation{Done: "run", Schedule: c.Name, Job: cli.Text(id)}, "enqueued "+id)
	})
}

type schedulesPause struct{ oneSchedule }

func (c *schedulesPause) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.change(ctx, g, stdio, "paused", (*cron.Runner).Pause)
}

type schedulesResume struct{ oneSchedule }

func (c *schedulesResume) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	return c.change(ctx, g, stdio, "resumed", (*cron.Runner).Resume)
}
