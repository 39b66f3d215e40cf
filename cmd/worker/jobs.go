package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

type jobsCommand struct {
	List    jobsList    `cmd:"" help:"List jobs of any state."`
	Run     jobsRun     `cmd:"" help:"Run jobs now that are archived, scheduled or wait for their next attempt."`
	Cancel  jobsCancel  `cmd:"" help:"Stop jobs that run."`
	Archive jobsArchive `cmd:"" help:"Give jobs up that do not run yet; they can be run later."`
	Delete  jobsDelete  `cmd:"" help:"Delete jobs that do not run."`
}

// filter selects jobs.
type filter struct {
	State   []string      `placeholder:"STATE" help:"Only in these states: active, called, waiting, pending, retry, scheduled, archived or completed, with commas between them."`
	Queue   string        `placeholder:"NAME" help:"Only of this queue."`
	Type    string        `placeholder:"TYPE" help:"Only of this type."`
	Limit   string        `placeholder:"NAME" help:"Only those that wait for this limit."`
	Key     string        `placeholder:"KEY" help:"Only those that wait for this key of a limit."`
	Older   time.Duration `placeholder:"DURATION" help:"Only those that are in their state for longer than this."`
	Payload string        `placeholder:"TEXT" help:"Only those whose payload contains this text."`
	Error   string        `placeholder:"TEXT" help:"Only those whose last error contains this text."`
}

// of is the filter of a flag's words, or says what is wrong with them.
func (f filter) of(ctx context.Context, limiter *throttle.Lanes) (inspect.Filter, error) {
	all := inspect.Filter{
		States: f.State, Queue: f.Queue, Type: f.Type, Limit: f.Limit, Key: f.Key,
		Older: f.Older, Payload: f.Payload, Error: f.Error,
	}
	for _, state := range f.State {
		if !slices.Contains(inspect.States, state) {
			return all, cli.Usagef("--state %s: want %s", state, strings.Join(inspect.States, ", "))
		}
		if (f.Limit != "" || f.Key != "") && state != inspect.Waiting && state != inspect.Called {
			return all, cli.Usagef("--state %s: with --limit or --key want waiting or called: no other job waits for a limit", state)
		}
		if f.Older != 0 && state == "scheduled" {
			return all, cli.Usagef("--older %s: want another --state than scheduled: nobody knows since when those are", f.Older)
		}
	}
	if f.Older < 0 {
		return all, cli.Usagef("--older %s: want a time up to now, such as 24h", f.Older)
	}
	if f.Limit == "" {
		return all, nil
	}
	limits, err := limiter.Limits(ctx)
	if err == nil && !slices.ContainsFunc(limits, func(l throttle.Limit) bool { return l.Name == f.Limit }) {
		err = fmt.Errorf("there is no limit %s", f.Limit)
	}
	return all, err
}
