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
	Queue   cli.Term      `placeholder:"NAME" help:"Only of this queue."`
	Type    cli.Term      `placeholder:"TYPE" help:"Only of this type."`
	Limit   cli.Term      `placeholder:"NAME" help:"Only those that wait for this limit."`
	Key     cli.Term      `placeholder:"KEY" help:"Only those that wait for this key of a limit."`
	Older   time.Duration `placeholder:"DURATION" help:"Only those that are in their state for longer than this."`
	Payload cli.Term      `placeholder:"TEXT" help:"Only those whose payload contains this text."`
	Error   cli.Term      `placeholder:"TEXT" help:"Only those whose last error contains this text."`
}

func (f filter) of(ctx context.Context, limiter *lanes.Lanes) (inspect.Filter, error) {
	all := inspect.Filter{
		States: f.State, Queue: string(f.Queue), Type: string(f.Type), Limit: string(f.Limit), Key: string(f.Key),
		Older: f.Older, Payload: string(f.Payload), Error: string(f.Error),
	}
	if f.State != nil && len(f.State) == 0 {
		all.States = []string{""} // said of a shell's variable that is not set, and no state
	}
	return all, badFlag(all.Check(ctx, limiter))
}

func badFlag(err error) error {
	if _, ok := errors.AsType[*throttle.FieldError](err); ok {
		return cli.Usagef("--%w", err)
	}
	return err
}
