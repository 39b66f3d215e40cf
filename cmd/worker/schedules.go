package main

import (
	"cmp"
	"context"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/scheduler/cron"
)

type schedulesCommand struct {
	List   schedulesList  `cmd:"" help:"List schedules with their last and next ticks."`
	Run    schedulesRun   `cmd:"" help:"Enqueue a schedule's job now, in addition to its ticks."`
	Pause  schedulesPause `cmd:"" help:"Pause a schedule until it is resumed."`
	Resume schedulesPause `cmd:"" help:"Resume a paused schedule. The ticks during the pause are skipped."`
}

func newSchedulesCommand() schedulesCommand {
	return schedulesCommand{
		Pause:  schedulesPause{done: "paused", do: (*cron.Runner).Pause},
		Resume: schedulesPause{done: "resumed", do: (*cron.Runner).Resume},
	}
}

type schedulesList struct {
	JSON bool `help:"Print a JSON array."`
}

// tick is a time that is printed with its UTC offset, because clocks show an hour twice when DST
// ends.
type tick struct{ time.Time }

func (t tick) String() string {
	if t.IsZero() {
		return "-"
	}
	return t.Format("Mon 2006-01-02 15:04:05 -07:00")
}

type scheduleStatus struct {
	Name     string `json:"name"`
	Cron     string `json:"cron"`
	Zone     string `json:"zone"`
	Task     string `json:"task"`
	State    string `json:"state"`
	Next     tick   `json:"next,omitzero"`
	Last     tick   `json:"last,omitzero"`
	Outcome  string `json:"outcome"`
	Enqueued int64  `json:"enqueued"`
	Skipped  int64  `json:"skipped"`
	Failed   int64  `json:"failed"`
}

func newScheduleStatus(s cron.Status) scheduleStatus {
	v := scheduleStatus{
		Name: s.Entry.Name, Cron: s.Entry.Cron, Zone: cmp.Or(s.Entry.Zone, "UTC"), Task: s.Entry.Type, State: "active",
		Last: tick{s.Last}, Outcome: s.Outcome, Enqueued: s.Enqueued, Skipped: s.Skipped, Failed: s.Failed,
	}
	switch {
	case s.Entry.Disabled:
		v.State = "disabled"
	case s.Paused:
		v.State = "paused"
	}
	if len(s.Next) > 0 {
		v.Next.Time = s.Next[0]
	}
	return v
}

func (c *schedulesList) Run(ctx context.Context, runner *cron.Runner, stdio cli.IO) error {
	list, err := runner.List(ctx, 1)
	if err != nil {
		return err
	}
	var rows []scheduleStatus
	for _, s := range list {
		rows = append(rows, newScheduleStatus(s))
	}
	return cli.List(stdio.Out, c.JSON, rows, noSchedules,
		"NAME", "CRON", "ZONE", "TASK", "STATE", "NEXT", "LAST", "OUTCOME", "ENQUEUED", "SKIPPED", "FAILED")
}

const noSchedules = `The config has no schedules. An example:

schedules:
  nightly: {cron: "30 2 * * *", zone: Europe/London, task: "http:request", payload: {url: "https://example.com/"}}`

type schedulesRun struct {
	Name string `arg:"" help:"Name of the schedule."`
}

func (c *schedulesRun) Run(ctx context.Context, runner *cron.Runner, stdio cli.IO) error {
	id, err := runner.Trigger(ctx, c.Name)
	return confirm(stdio, err, "enqueued %s", id)
}

type schedulesPause struct {
	Name string `arg:"" help:"Name of the schedule."`

	done string // the verb in the confirmation
	do   func(runner *cron.Runner, ctx context.Context, name string) error
}

func (c *schedulesPause) Run(ctx context.Context, runner *cron.Runner, stdio cli.IO) error {
	return confirm(stdio, c.do(runner, ctx, c.Name), "%s %s", c.done, c.Name)
}
