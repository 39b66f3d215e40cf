// Package example is what the examples have in common: the table at their end,
// and a folder in which the commands run with a Redis of their own.
package example

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/programs"
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
	fmt.Println()
	_ = cli.Table(os.Stdout, []string{"", "ASKED", "MEASURED", "KEPT"}, t.rows)
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

// Once adds a promise that none of these things happened twice, by how often each did.
func (t *Table) Once(what string, times map[string]int) {
	again := 0
	for _, n := range times {
		again += n - 1
	}
	t.None(what, again)
}

// Denials adds how many denials a job had on the average, under that name.
func (t *Table) Denials(what string, denials, jobs int) {
	t.Measured(what, "at most about 1", fmt.Sprintf("%.2f", float64(denials)/float64(jobs)))
}

// A Job is a line for enqueue.
type Job struct {
	Type    string         `json:"type"`
	ID      string         `json:"id"`
	Payload map[string]any `json:"payload"`
}

// Enqueue adds jobs: "enqueue -".
func Enqueue(ctx context.Context, p *programs.Programs, jobs []Job) error {
	var lines bytes.Buffer
	for _, job := range jobs {
		if err := json.NewEncoder(&lines).Encode(job); err != nil {
			return err
		}
	}
	cmd := p.Command(ctx, "enqueue", "-")
	cmd.Stdin = &lines
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("enqueue: %w: %s", err, said)
	}
	return nil
}

// Ended is what "worker run --log-jobs" says of an attempt at a job.
type Ended struct {
	Message string `json:"msg"`
	Outcome string
	Type    string
	ID      string
	Started time.Time
	Denials int
}

// Run has a worker run, as "worker run" does, gives it the jobs with enqueue, and
// stops it when so many attempts are done, with those that follow on others. Without a
// redis in their config the two share the embedded Redis.
func Run(ctx context.Context, p *programs.Programs, jobs []Job, total int) ([]Ended, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cmd := p.Command(ctx, "worker", "run", "--log-jobs", "--log-format", "json")
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	enqueue := sync.OnceFunc(func() {
		go func() {
			if err := Enqueue(ctx, p, jobs); err != nil {
				stop(err)
			}
		}()
	})
	var ended []Ended
	var others strings.Builder // lines
	done := 0
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var e Ended
		switch err := json.Unmarshal(lines.Bytes(), &e); {
		case err == nil && e.Message == "running jobs":
			enqueue()
		case err != nil || e.Message != "job ended":
			others.WriteString(lines.Text() + "\n")
		default:
			ended = append(ended, e)
			if e.Outcome == "done" {
				done++
			}
			if done == total {
				stop(nil) // the worker ends, and its log
			}
		}
	}
	if err := cmd.Wait(); done < total {
		return ended, fmt.Errorf("the worker did %d of %d jobs: %w\n%s", done, total, cmp.Or(context.Cause(ctx), err), others.String())
	}
	return ended, nil
}

// PerSecond is how often something happened between the first and the last time.
func PerSecond(times []time.Time) float64 {
	if len(times) < 2 {
		return 0
	}
	return float64(len(times)-1) / times[len(times)-1].Sub(times[0]).Seconds()
}
