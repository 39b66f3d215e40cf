package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/tasks"
)

type line struct {
	number int // from 1; 0 for the job of the flags
	jobspec.Job
	ownID bool // the user chose the ID
}

func (l line) where() string {
	if l.number == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", l.number)
}

type source struct {
	config   *config.Config
	defaults jobspec.Options
	json     bool
	showIDs  bool
	stdio    cli.IO

	input io.Reader
	given []jobspec.Job // instead of the input
	crawl string        // name of the crawl of the jobs, if any

	last    line       // the last good job
	added   []addedJob // with showIDs and json
	bad     complaints
	err     error           // why the input ended early
	foreign map[string]bool // types that are not built in; reported once
}

func newSource(conf *config.Config, defaults jobspec.Options, json bool, stdio cli.IO) *source {
	return &source{config: conf, defaults: defaults, json: json, stdio: stdio, bad: complaints{out: stdio.Err}}
}

// maxLine bounds a line. Redis itself takes at most 512 MB.
const maxLine = 64 << 20

// jobs yields the good jobs, one at a time, because the input can be of any length.
func (s *source) jobs() iter.Seq[line] {
	return func(yield func(line) bool) {
		if s.given != nil {
			for _, job := range s.given {
				if !s.give(line{Job: job}, job.Validate(), yield) {
					return
				}
			}
			return
		}
		scanner := bufio.NewScanner(s.input)
		scanner.Buffer(make([]byte, 64<<10), maxLine)
		for number := 1; scanner.Scan(); number++ {
			text := bytes.TrimSpace(scanner.Bytes())
			if number == 1 {
				text = bytes.TrimPrefix(text, []byte("\ufeff")) // Windows editors write it
			}
			if len(text) == 0 {
				continue
			}
			job, err := jobspec.Parse(text)
			if !s.give(line{number: number, Job: job}, err, yield) {
				return
			}
		}
		s.err = scanner.Err()
		if errors.Is(s.err, bufio.ErrTooLong) {
			s.err = fmt.Errorf("after line %d: a line is longer than %d MB: want one job a line", s.last.number, maxLine>>20)
		}
	}
}

func (s *source) give(l line, err error, yield func(line) bool) bool {
	l.ownID = l.ID != ""
	if err == nil {
		err = s.check(l)
	}
	if err != nil {
		s.bad.add(l, err)
		return true
	}
	l.Job = l.Fill(s.defaults, s.config)
	if !l.Deadline.IsZero() && time.Now().After(l.Deadline) {
		s.bad.add(l, fmt.Errorf("deadline %s: want a time from now on", l.Deadline.Format(time.RFC3339)))
		return true
	}
	s.last = l
	return yield(l)
}

// check returns the error that the job's handler would return for the payload. Types that are not
// built in cannot be checked and are only reported.
func (s *source) check(l line) error {
	err := tasks.Validate(l.Type, l.Payload)
	if !errors.Is(err, tasks.ErrUnknownType) {
		return err
	}
	if s.foreign[l.Type] {
		return nil
	}
	if s.foreign == nil {
		s.foreign = map[string]bool{}
	}
	s.foreign[l.Type] = true
	fmt.Fprintf(s.stdio.Err, "enqueue: %stype %q is not built in (%s): only your own worker program can run it\n",
		l.where(), l.Type, strings.Join(tasks.Types(), ", "))
	return nil
}

func (s *source) failed() bool { return s.bad.lines > 0 || s.err != nil }

// finish prints how many jobs were added, and returns the error for the exit code.
func (s *source) finish(added int, err error) error {
	s.bad.sum()
	if failed := s.say(added); failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	return s.verdict()
}

func (s *source) say(added int) error {
	id := ""
	if len(s.given) == 1 && added == 1 {
		id = s.last.ID
	}
	if s.json {
		return cli.JSON(s.stdio.Out, struct {
			Enqueued int        `json:"enqueued"`
			There    int        `json:"there_already"`
			BadLines int        `json:"bad_lines"`
			ID       string     `json:"id,omitempty"`
			IDs      []addedJob `json:"ids,omitempty"`
			Crawl    string     `json:"crawl,omitempty"`
		}{added, s.bad.refused, s.bad.lines - s.bad.refused, id, s.added, s.crawl})
	}
	if s.showIDs { // standard output has the IDs alone
		id, s.stdio.Out = "", s.stdio.Err
	}
	text := "enqueued " + display.Count(added, "job")
	var others []string
	if s.bad.refused > 0 {
		others = append(others, fmt.Sprintf("%d exist already", s.bad.refused))
	}
	if bad := s.bad.lines - s.bad.refused; bad > 0 {
		others = append(others, display.Count(bad, "bad line"))
	}
	if len(others) > 0 && s.given == nil {
		text += " (" + strings.Join(others, ", ") + ")"
	}
	if id != "" {
		text += ": " + cli.Line(id)
	}
	_, err := fmt.Fprintln(s.stdio.Out, text)
	return err
}

func (s *source) verdict() error {
	switch {
	case s.err != nil:
		return cli.Usagef("%w", s.err)
	case s.bad.lines > s.bad.refused:
		return cli.BadInput
	case s.bad.lines > 0:
		return cli.Failed
	}
	return nil
}

// complaints prints the errors of lines. A repeated message is printed for the first line and counted
// for the others.
type complaints struct {
	out     io.Writer
	lines   int // bad lines and existing jobs
	refused int // existing jobs
	texts   []string
	more    map[string]*repeated
}

// repeated counts repetitions of a message.
type repeated struct{ count, last int }

// maxRefused is the number of messages about existing jobs that are printed.
const maxRefused = 3

func (c *complaints) add(l line, err error) {
	c.lines++
	_, refused := errors.AsType[*refusedError](err)
	if refused {
		c.refused++
	}
	text := cli.Line(err.Error())
	if again := c.more[text]; again != nil {
		again.count++
		again.last = l.number
		return
	}
	if refused && c.refused > maxRefused {
		return // finish prints their number
	}
	if c.more == nil {
		c.more = map[string]*repeated{}
	}
	c.more[text] = &repeated{}
	c.texts = append(c.texts, text)
	fmt.Fprintf(c.out, "enqueue: %s%s\n", l.where(), text)
}

// sum prints the repetitions.
func (c *complaints) sum() {
	for _, text := range c.texts {
		switch again := c.more[text]; again.count {
		case 0:
		case 1:
			fmt.Fprintf(c.out, "enqueue: line %d as well: %s\n", again.last, text)
		default:
			fmt.Fprintf(c.out, "enqueue: %d more lines, up to line %d: %s\n", again.count, again.last, text)
		}
	}
}

// refusedError means that the queue has such a job already.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// addedJob is an added job. Its line is 0 if it was given by flags.
type addedJob struct {
	Line int      `json:"line,omitempty"`
	ID   cli.Text `json:"id"`
}

// showID prints the ID of an added job, or keeps it for the JSON object, if --ids is set.
func (s *source) showID(job addedJob) {
	switch {
	case !s.showIDs:
	case s.json:
		s.added = append(s.added, job)
	case job.Line == 0:
		fmt.Fprintln(s.stdio.Out, job.ID)
	default:
		fmt.Fprintf(s.stdio.Out, "%d\t%s\n", job.Line, job.ID)
	}
}
