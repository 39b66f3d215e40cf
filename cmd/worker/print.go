package main

import (
	"fmt"
	"io"

	"github.com/headgate/headgate/cmd/internal/cli"
)

// confirming is embedded by commands that print only what they did.
type confirming struct {
	JSON bool `help:"Print a JSON object of what was done."`
}

type confirmation struct {
	Done       string `json:"done"`
	Limit      string `json:"limit,omitempty"`
	Key        string `json:"key,omitempty"`
	Definition string `json:"definition,omitempty"`
	Schedule   string `json:"schedule,omitempty"`
	Jobs       *int   `json:"jobs,omitempty"`
	Skipped    int    `json:"skipped,omitempty"` // jobs
	Queue      string `json:"queue,omitempty"`
	Job        string `json:"job,omitempty"`
}

// confirm prints what was done, as text or as JSON. If there is an error, it returns the error instead.
func (c confirming) confirm(out io.Writer, did confirmation, text string, err error) error {
	if err != nil {
		return err
	}
	if c.JSON {
		return cli.JSON(out, did)
	}
	_, err = fmt.Fprintln(out, cli.Line(text))
	return err
}
