package main

import (
	"context"
	"errors"
	"io"
	"os"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/hush"
)

func init() { hush.Over() } // by now bubbletea has not asked

type topCommand struct{}

// Help is the manual of "worker top".
func (topCommand) Help() string {
	return `Shows each limit, what it lets through, what waits for it, since when and until when, and below it the keys of the chosen limit that most jobs wait for.

  ↑ ↓      choose a limit           p      pause or resume it
  + -      raise or lower its rate  j      look up a job by its id
  s        sort by another column   /      show only limits that contain a text
  q        quit                     esc    back

What changes a limit asks first. It changes it for everybody, as "worker limits set" does, but not where jobs wait that it then refuses. Rates are those of the last 10 seconds. What waits is counted by the workers all the time and is some seconds old: a look costs Redis the same however much that is. When the last one runs is that of the limit's busiest keys.

It needs a terminal, of 80×24 characters or more; "worker status" and "worker waiting" print the same numbers.`
}

// Run implements "worker top".
func (c *topCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	if !cli.IsTerminal(stdio.Out) {
		return cli.Usagef("top: want a terminal: \"worker status\" and \"worker waiting\" print the same numbers")
	}
	q, err := connectQueues(ctx, g)
	if err != nil {
		return err
	}
	defer q.close()
	program := tea.NewProgram(newTopModel(topRedis{q}), append(terminal(stdio), tea.WithAltScreen(), tea.WithContext(ctx))...)
	end, err := program.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil // by a signal
	}
	if model, ok := end.(topModel); ok && err == nil {
		return model.fatal
	}
	return err
}

// terminal is where the program reads keys and draws.
func terminal(stdio cli.IO) []tea.ProgramOption {
	in := io.Reader(os.Stdin)
	if stdio.In != nil {
		in = stdio.In
	}
	return []tea.ProgramOption{tea.WithInput(in), tea.WithOutput(stdio.Out), tea.WithoutSignalHandler()}
}
