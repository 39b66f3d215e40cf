package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/forecast"
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

// printList prints things as a JSON array, or as a table of rows, or says what there is
// where there are none.
func printList(out io.Writer, asJSON bool, things any, titles []string, rows [][]string, none string) error {
	if asJSON {
		return cli.JSON(out, things)
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, none)
		return err
	}
	return cli.Table(out, titles, rows)
}

func in(d time.Duration) string {
	switch {
	case d <= 0:
		return "now"
	case d < time.Minute:
		return duration.Text(d)
	}
	return fmt.Sprintf("%s (%s)", duration.Text(d), time.Now().Add(d).Format(time.DateTime))
}

func lastIn(e forecast.Estimate) string {
	switch {
	case e.AtLeast && e.StartsIn > 0:
		return "not before " + time.Now().Add(e.StartsIn).Format(time.DateTime)
	case !e.Known:
		return "unknown"
	case e.Estimated:
		return "about " + in(e.StartsIn)
	}
	return in(e.StartsIn)
}

// endsIn is lastIn where no title says that it is a time to come.
func endsIn(e forecast.Estimate) string {
	if !e.Known || e.StartsIn <= 0 {
		return lastIn(e)
	}
	return "in " + lastIn(e)
}

// lastSeconds is lastIn in JSON: null where nobody knows.
func lastSeconds(e forecast.Estimate) *float64 {
	if !e.Known {
		return nil
	}
	return new(e.StartsIn.Seconds())
}

// dateTime is a time where people are, and nothing for none.
func dateTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// tickFormat shows the offset, which tells the two hours of an autumn night
// apart.
const tickFormat = "Mon 2006-01-02 15:04:05 -07:00"

func clock(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(tickFormat)
}

// zoneName is that of a schedule, which may name none.
func zoneName(zone string) string { return cmp.Or(zone, "UTC") }

// text is a setting's duration, and nothing for none.
func text(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return duration.Exact(d)
}

func numbers(of ...int) (cells []string) {
	for _, n := range of {
		cells = append(cells, fmt.Sprint(n))
	}
	return cells
}

// number is a number, and nothing for none.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
