package main

import (
	"fmt"
	"io"

	"github.com/headgate/headgate/cmd/internal/cli"
)

// ids tells the IDs of the jobs that were added, so that inputs and results can be matched.
type ids struct {
	out  io.Writer
	keep bool // in Added, instead of printing them at once
	// Added is in the order in which the jobs were added.
	Added []addedJob
}

// addedJob is a job that was added: its line, 0 for the job of the flags, and its ID.
type addedJob struct {
	Line int      `json:"line,omitempty"`
	ID   cli.Text `json:"id"`
}

func (i *ids) add(job addedJob) {
	switch {
	case i.keep:
		i.Added = append(i.Added, job)
	case job.Line == 0:
		fmt.Fprintln(i.out, job.ID)
	default:
		fmt.Fprintf(i.out, "%d\t%s\n", job.Line, job.ID)
	}
}
