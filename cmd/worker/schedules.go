package main

import (
	"cmp"
	"context"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/scheduler/cron"
)

type schedulesCommand struct {
	List   schedulesList            `cmd:"" help:"List schedules with their last and next ticks."`
	Run    nameAction[*cron.Runner] `cmd:"" set:"what=schedule" help:"Enqueue a schedule's job now, in addition to its ticks."`
	Pause  nameAction[*cron.Runner] `cmd:"" set:"what=schedule" help:"Pause a schedule until it is resumed."`
	Resume nameAction[*cron.Runner] `cmd:"" set:"what=schedule" help:"Resume a paused schedule. The ticks during the pause are dropped."`
}

func newSchedulesCommand() (c schedulesCommand) {
	c.Run.do = func(runner *cron.Runner, ctx context.Context, name string) (string, error) {
		id, err := runner.Trigger(ctx, name)
		return "enqueued " + id, err
	}
	c.Pause.do = func(runner *cron.Runner, ctx context.Context, name string) (string, error) {
		return "paused " + name, runner.Pause(ctx, name)
	}
	c.Resume.do = func(runner *cron.Runner, ctx context.Context, name string) (string, error) {
		return "resumed " + name, runner.Resume(ctx, name)
	}
	return c
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
