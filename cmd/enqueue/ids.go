package main

import (
	"fmt"
	"io"

	"github.com/headgate/headgate/cmd/internal/cli"
)

// ids prints the IDs of added jobs, so that inputs and results can be matched.
type ids struct {
	out  io.Writer
	keep bool // collect them in Added instead

	Added []addedJob // in order
}

// addedJob is an added job. Its line is 0 if it was given by flags.
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
