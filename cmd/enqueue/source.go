package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

type line struct {
	number int // from 1; 0 for the job of the flags
	jobspec.Job
	ownID bool // the user chose the ID
	rule  scheduler.Rule
	shard shard.Shard
}

func (l line) where() string {
	if l.number == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", l.number)
}

// source reads jobs, and reports which of them are bad and which were added.
type source struct {
	config   *config.Config
	defaults jobspec.Options
	json     bool
	showIDs  bool
	stdio    cli.IO

	input io.Reader
	given []jobspec.Job // instead of the input
	crawl string        // name of the crawl of the jobs, if any

	last     line       // the last good job
	added    int        // number of added jobs
	ids      []addedJob // of added jobs, with showIDs and json
	bad      int        // number of bad lines
	existing int        // number of jobs that exist already
	shown    int        // number of errors that were printed
	err      error      // why the input ended early
	foreign  map[string]bool
}

// addedJob is an added job. Its line is 0 if it was given by flags.
type addedJob struct {
	Line int    `json:"line,omitempty"`
	ID   string `json:"id"`
}

// maxLine bounds a line. Redis itself takes at most 512 MB.
const maxLine = 64 << 20

// jobs yields the good jobs, one at a time, because the input can be of any length.
func (s *source) jobs() iter.Seq[line] {
	return func(yield func(line) bool) {
		for _, job := range s.given {
			if l, ok := s.check(line{Job: job}, job.Validate()); ok && !yield(l) {
				return
			}
		}
		if s.given != nil {
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
			if l, ok := s.check(line{number: number, Job: job}, err); ok && !yield(l) {
				return
			}
		}
		s.err = scanner.Err()
		if errors.Is(s.err, bufio.ErrTooLong) {
			s.err = fmt.Errorf("after line %d: a line is longer than %d MB: want one job a line", s.last.number, maxLine>>20)
		}
	}
}

// check fills in a job, and rejects it if it has an error or could never run.
func (s *source) check(l line, err error) (filled line, ok bool) {
	l.ownID = l.ID != ""
	if err == nil {
		err = s.checkPayload(l)
	}
	if err == nil {
		l.Job = l.Fill(s.defaults, s.config)
		l.rule, err = l.Rule(s.config)
	}
	if err == nil {
		err = checkNeeds(s.config, l.Queue, l.rule)
	}
	if err == nil {
		l.shard, err = s.config.ShardOf(l.Queue, l.ID, l.Task())
	}
	if err == nil && !l.Deadline.IsZero() && time.Now().After(l.Deadline) {
		err = fmt.Errorf("deadline %s: want a time from now on", l.Deadline.Format(time.RFC3339))
	}
	if err != nil {
		s.reject(l, err)
		return l, false
	}
	s.last = l
	return l, true
}

// checkPayload returns the error that the job's handler would return for the payload. A type that
// is not built in cannot be checked: it is no error, and is printed once.
func (s *source) checkPayload(l line) error {
	err := tasks.Validate(l.Type, l.Payload)
	if !errors.Is(err, tasks.ErrUnknownType) {
		return err
	}
	if !s.foreign[l.Type] {
		if s.foreign == nil {
			s.foreign = map[string]bool{}
		}
		s.foreign[l.Type] = true
		fmt.Fprintf(s.stdio.Err, "enqueue: %stype %q is not built in (%s, %sNAME): only your own worker program can run it\n",
			l.where(), l.Type, strings.Join(tasks.Types(), ", "), tasks.PrefixExec)
	}
	return nil
}

// checkNeeds returns an error for a need that the limits of the config can never meet.
func checkNeeds(conf *config.Config, queue string, rule scheduler.Rule) error {
	if err := conf.Sharded.Check(queue, shard.Shard{}, rule.Needs); err != nil {
		return err
	}
	for _, n := range rule.Needs {
		i := slices.IndexFunc(conf.Limits, func(l throttle.Limit) bool { return l.Name == n.Limit })
		if i < 0 {
			continue
		}
		l := conf.Limits[i]
		capacity := l.With(l.Overrides[n.Key]).MaxCost()
		if home, divided := conf.Sharded.Home(l.Name); divided {
			capacity /= home.Count
		}
		switch {
		case len(l.Apps) > 0 && !slices.Contains(l.Apps, conf.App) && rule.OnNoLimit != scheduler.ActionRun:
			return fmt.Errorf("limit %s is for other apps: see apps: and app: in the config", l.Name)
		case n.Cost > capacity:
			return fmt.Errorf("cost %d is above the capacity %d of limit %s: it can never run", n.Cost, capacity, l.Name)
		}
	}
	return nil
}

// maxShown is the number of errors of lines that are printed. The others are counted.
const maxShown = 20

// reject reports a bad line, or a job that exists already.
func (s *source) reject(l line, err error) {
	if _, exists := errors.AsType[*existsError](err); exists {
		s.existing++
	} else {
		s.bad++
	}
	switch s.shown++; {
	case s.shown <= maxShown:
		fmt.Fprintf(s.stdio.Err, "enqueue: %s%s\n", l.where(), cli.Line(err.Error()))
	case s.shown == maxShown+1:
		fmt.Fprintln(s.stdio.Err, "enqueue: further errors are only counted")
	}
}

// existsError means that the queue has such a job already.
type existsError struct{ text string }

func (e *existsError) Error() string { return e.text }

// accept counts an added job. With --ids it prints the ID, or keeps it for the JSON object.
func (s *source) accept(l line) {
	s.added++
	switch {
	case !s.showIDs:
	case s.json:
		s.ids = append(s.ids, addedJob{l.number, l.ID})
	case l.number == 0:
		fmt.Fprintln(s.stdio.Out, cli.Line(l.ID))
	default:
		fmt.Fprintf(s.stdio.Out, "%d\t%s\n", l.number, cli.Line(l.ID))
	}
}

// finish prints how many jobs were added, and returns the error for the exit code.
func (s *source) finish(err error) error {
	if failed := s.print(); failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	return s.verdict()
}

func (s *source) print() error {
	id := ""
	if len(s.given) == 1 && s.added == 1 {
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
		}{s.added, s.existing, s.bad, id, s.ids, s.crawl})
	}
	if s.showIDs { // standard output has the IDs alone
		id, s.stdio.Out = "", s.stdio.Err
	}
	text := "enqueued " + display.Count(s.added, "job")
	var others []string
	if s.existing > 0 {
		others = append(others, fmt.Sprintf("%d exist already", s.existing))
	}
	if s.bad > 0 {
		others = append(others, display.Count(s.bad, "bad line"))
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
	case s.bad > 0:
		return cli.BadInput
	case s.existing > 0:
		return cli.Failed
	}
	return nil
}
