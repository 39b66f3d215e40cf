package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stats"
)

type drainCommand struct {
	Workers []string `arg:"" optional:"" name:"worker" help:"Workers as HOST:PID, or HOST for all workers there, as \"worker status\" lists them."`
	All     bool     `help:"All workers of the scope."`
	Undo    bool     `help:"Let the workers take jobs again, and do not wait."`
}

func (drainCommand) Help() string {
	return `Stops workers from taking new jobs, and waits until no job runs there. Then a worker can be stopped without interrupting a job. It still serves its page, metrics and health, grants permits to the jobs of other workers, and runs schedules. Its /readyz stays 200.

Programs with a scheduler.Server obey, too. A drain belongs to the process: after a restart the worker takes jobs again. An interrupt ends the waiting, not the drain. The exit code is 0 if all workers are drained or have stopped.`
}

// Validate reports what is wrong with the arguments. kong calls it.
func (c *drainCommand) Validate() error {
	if c.All == (len(c.Workers) > 0) {
		return fmt.Errorf("workers %q: want the workers to drain, as HOST or HOST:PID, or --all instead", strings.Join(c.Workers, " "))
	}
	return nil
}

func (c *drainCommand) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	all, err := q.Workers(ctx)
	if err != nil {
		return err
	}
	workers, err := c.find(all)
	if err != nil {
		return err
	}
	if !c.Undo {
		orders, err := stats.Drain(ctx, q.Limiter, workers...)
		if err != nil {
			return err
		}
		return waitUntilDrained(ctx, q, workers, orders, stdio)
	}
	if err := stats.EndDrain(ctx, q.Limiter, workers...); err != nil {
		return err
	}
	for _, w := range workers {
		if err := confirm(stdio, nil, "%s takes jobs again", w.Name()); err != nil {
			return err
		}
	}
	return nil
}

// find returns the workers that the arguments name.
func (c *drainCommand) find(all []stats.Process) (found []stats.Process, err error) {
	all = slices.DeleteFunc(all, func(w stats.Process) bool { return w.Lost })
	if len(all) == 0 {
		return nil, errors.New("no worker is running")
	}
	if c.All {
		return all, nil
	}
	for _, name := range c.Workers {
		named := slices.DeleteFunc(slices.Clone(all), func(w stats.Process) bool { return name != w.Name() && name != w.Host })
		if len(named) == 0 {
			var names []string
			for _, w := range all {
				names = append(names, w.Name())
			}
			return nil, cli.Usagef("worker %q does not run: want one of %s", name, strings.Join(names, ", "))
		}
		found = append(found, named...)
	}
	return found, nil
}

// drainPause is the time between two looks at workers that are drained.
const drainPause = 500 * time.Millisecond

// waitUntilDrained prints what each worker does until all have no job or have ended.
func waitUntilDrained(ctx context.Context, q *inspect.Queues, workers []stats.Process, orders map[string]string, stdio cli.IO) (result error) {
	printed, obeyed := map[string]string{}, map[string]bool{}
	for {
		now, err := q.Workers(ctx)
		if ctx.Err() != nil {
			fmt.Fprintln(stdio.Err, cli.Worker+cli.Named(`: no longer waiting; the workers take no new jobs until a restart, or "worker drain --undo" with the same arguments`))
			return cli.Failed
		}
		if err != nil {
			return err
		}
		left := 0
		for _, w := range workers {
			text, waits := "has stopped", false
			if i := slices.IndexFunc(now, func(other stats.Process) bool { return other.ID == w.ID }); i >= 0 {
				obeys := now[i].DrainOrder == orders[w.ID]
				text, waits = drainProgress(now[i], obeys, obeyed[w.ID])
				if !waits && (!obeys || now[i].Lost) {
					result = cli.Failed
				}
				obeyed[w.ID] = obeyed[w.ID] || obeys
			}
			if printed[w.ID] != text {
				printed[w.ID] = text
				fmt.Fprintln(stdio.Out, cli.Line(w.Name()+" "+text))
			}
			if waits {
				left++
			}
		}
		if left == 0 {
			return result
		}
		select {
		case <-ctx.Done():
		case <-time.After(drainPause):
		}
	}
}

// drainProgress says what a worker does, and whether to wait for it. obeys is whether it knows the order,
// and obeyed whether it has known the order before.
func drainProgress(w stats.Process, obeys, obeyed bool) (text string, waits bool) {
	switch {
	case w.Lost:
		return "is lost: its jobs run again elsewhere", false
	case obeyed && !obeys:
		return "takes jobs again: the drain was undone", false
	case obeys && w.State == stats.StateDrained:
		return "is drained: no job runs", false
	case obeys || w.State == stats.StateStopping:
		return fmt.Sprintf("is %s: %s", w.State, display.CountVerb(int(w.Running), "job", "runs", "run")), true
	}
	return "gets the order", true
}
