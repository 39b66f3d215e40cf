// Package example is what the examples have in common: the table at their end,
// and a folder in which the commands run with a Redis of their own.
package example

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// late is when an example is given up, whose jobs never end.
const late = 10 * time.Minute

// Main runs an example until it is done or a signal comes, and prints its table.
// The exit code is 1 if it could not run, or a promise was broken.
func Main(run func(ctx context.Context, t *Table) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, late, fmt.Errorf("not done within %s", late))
	defer cancel()
	var t Table
	if err := run(ctx, &t); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	t.print()
	if t.broken {
		fmt.Println("Something went wrong: see the table.")
		os.Exit(1)
	}
}

// Table is what an example asked for and what it measured.
type Table struct {
	rows   [][]string
	broken bool
}

func (t *Table) print() {
	columns := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "\n\tASKED\tMEASURED\tKEPT")
	for _, row := range t.rows {
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	_ = columns.Flush()
}

// Measured adds a row that depends on the machine, too.
func (t *Table) Measured(what, asked, measured string) {
	t.rows = append(t.rows, []string{what, asked, measured, "-"})
}

// Promised adds a row of what has to hold on every machine.
func (t *Table) Promised(what, asked, measured string, kept bool) {
	verdict := "ok"
	if !kept {
		verdict, t.broken = "BROKEN", true
	}
	t.rows = append(t.rows, []string{what, asked, measured, verdict})
}

// None adds a promise that something never happens.
func (t *Table) None(what string, times int) {
	t.Promised(what, "0", fmt.Sprint(times), times == 0)
}
