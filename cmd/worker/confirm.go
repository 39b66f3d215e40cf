package main

import (
	"fmt"
	"io"

	"github.com/headgate/headgate/internal/cli"
)

// confirming is for commands that say only what they have done.
type confirming struct {
	JSON bool `help:"Print a JSON object of what was done."`
}

type confirmation struct {
	Done       string   `json:"done"`
	Limit      string   `json:"limit,omitempty"`
	Key        cli.Text `json:"key,omitempty"`
	Definition string   `json:"definition,omitempty"`
	Schedule   string   `json:"schedule,omitempty"`
	Jobs       *int     `json:"jobs,omitempty"`
	Left       int      `json:"left,omitempty"` // alone, since they changed meanwhile
	Queue      cli.Text `json:"queue,omitempty"`
	Job        cli.Text `json:"job,omitempty"`
}

// say prints what was done: as text for people, or all of it as JSON.
func (c confirming) say(out io.Writer, did confirmation, text string) error {
	if c.JSON {
		return cli.JSON(out, did)
	}
	_, err := fmt.Fprintln(out, cli.Foreign(text))
	return err
}
