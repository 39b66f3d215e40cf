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

// confirming is embedded by commands that print only what they did.
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
	Left       int      `json:"left,omitempty"` // skipped jobs
	Queue      cli.Text `json:"queue,omitempty"`
	Job        cli.Text `json:"job,omitempty"`
}

// say prints what was done, as text or as JSON.
func (c confirming) say(out io.Writer, did confirmation, text string) error {
	if c.JSON {
		return cli.JSON(out, did)
	}
	_, err := fmt.Fprintln(out, cli.Foreign(text))
	return err
}

// printList prints things as a JSON array or as a table. If there are no rows, it prints none.
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

func etaText(e forecast.Estimate) string {
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

// inETA is etaText with a preposition.
func inETA(e forecast.Estimate) string {
	if !e.Known || e.StartsIn <= 0 {
		return etaText(e)
	}
	return "in " + etaText(e)
}

// etaSeconds is nil if the time is unknown.
func etaSeconds(e forecast.Estimate) *float64 {
	if !e.Known {
		return nil
	}
	return new(e.StartsIn.Seconds())
}

// dateTime is the local time, or empty for the zero time.
func dateTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// tickFormat has the offset, because clocks show an hour twice when DST ends.
const tickFormat = "Mon 2006-01-02 15:04:05 -07:00"

func clock(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(tickFormat)
}

func zoneName(zone string) string { return cmp.Or(zone, "UTC") }

// text is empty for zero.
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

// number is empty for zero.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
