package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

type changesCommand struct {
	Limit cli.SearchTerm `placeholder:"NAME" help:"Only changes of this limit and its keys."`
	Max   int            `placeholder:"N" default:"50" help:"List at most this many (default ${default})."`
	JSON  bool           `help:"Print a JSON array."`
}

func (changesCommand) Help() string {
	return `Lists who changed limits, keys, queues, schedules and jobs, the newest change first. BEFORE and AFTER are definitions of a limit, or overrides of a key. A "defined" limit has changed in the config of a worker, "upstream" is a response that blocked a key. Redis keeps about 500 changes.`
}

func (c *changesCommand) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	if c.Max < 1 {
		return cli.Usagef("--max %d: want 1 at least", c.Max)
	}
	changes, err := q.Changes(ctx, 1000)
	if err != nil {
		return err
	}
	if c.Limit != "" {
		changes = slices.DeleteFunc(changes, func(change throttle.Change) bool { return change.Limit != string(c.Limit) })
	}
	var views []changeView
	for _, change := range changes[:min(c.Max, len(changes))] {
		views = append(views, newChangeView(change))
	}
	return cli.List(stdio.Out, c.JSON, views, "there are no changes", "AT", "BY", "WHAT", "CHANGE", "BEFORE", "AFTER")
}

type changeView struct {
	At       time.Time `json:"at"`
	By       string    `json:"by,omitempty"`
	Change   string    `json:"change"`
	Limit    string    `json:"limit,omitempty"`
	Key      string    `json:"key,omitempty"`
	Schedule string    `json:"schedule,omitempty"`
	Queue    string    `json:"queue,omitempty"`
	Job      string    `json:"job,omitempty"`
	Jobs     int       `json:"jobs,omitempty"`
	Before   string    `json:"before,omitempty"`
	After    string    `json:"after,omitempty"`
	Until    time.Time `json:"until,omitzero"` // end of a block

	by, what, after string // columns of the table
}

func newChangeView(c throttle.Change) changeView {
	v := changeView{
		At: c.At.UTC(), By: c.By, Change: c.What, Limit: c.Limit, Key: c.Key, Schedule: c.Schedule,
		Queue: c.Job.Queue, Job: c.Job.ID, Jobs: c.Jobs, Before: c.From, After: c.To, Until: c.Until, by: c.By, after: c.To,
	}
	if c.What == "defined" {
		v.by = cmp.Or(c.By, "a config")
	}
	switch {
	case c.Limit != "":
		v.what = display.Meter("limit " + c.Limit + "|" + c.Key)
	case c.Schedule != "":
		v.what = "schedule " + c.Schedule
	case c.Job.ID != "":
		v.what = "job " + c.Job.ID
	case c.Jobs > 0:
		v.what = display.Count(c.Jobs, "job")
	default:
		v.what = "queue " + c.Job.Queue
	}
	if c.Jobs > 0 && c.Job.Queue != "" {
		v.what += " of queue " + c.Job.Queue
	}
	if !c.Until.IsZero() {
		v.after = "until " + cli.DateTime(c.Until)
	}
	return v
}
