package main

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

type jobsCommand struct {
	List    jobsList    `cmd:"" help:"List jobs of any state."`
	Run     jobsRun     `cmd:"" help:"Run jobs now that are archived, scheduled or wait for their next attempt."`
	Cancel  jobsCancel  `cmd:"" help:"Stop jobs that run."`
	Archive jobsArchive `cmd:"" help:"Give jobs up that do not run yet; they can be run later."`
	Delete  jobsDelete  `cmd:"" help:"Delete jobs that do not run."`
}

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

func (f filter) of(ctx context.Context, limiter *lanes.Lanes) (inspect.Filter, error) {
	all := inspect.Filter{
		States: f.State, Queue: f.Queue, Type: f.Type, Limit: f.Limit, Key: f.Key,
		Older: f.Older, Payload: f.Payload, Error: f.Error,
	}
	return all, badFlag(all.Check(ctx, limiter))
}

func badFlag(err error) error {
	if _, ok := errors.AsType[*throttle.FieldError](err); ok {
		return cli.Usagef("--%w", err)
	}
	return err
}
