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

// untilText returns a duration, with its end if that is a minute away or more.
func untilText(d time.Duration) string {
	switch {
	case d <= 0:
		return "now"
	case d < time.Minute:
		return duration.Text(d)
	}
	return fmt.Sprintf("%s (%s)", duration.Text(d), cli.DateTime(time.Now().Add(d)))
}

// etaView is the time at which the last job of a backlog starts.
type etaView struct {
	Seconds   *float64 `json:"eta_s"` // null if unknown
	Estimated bool     `json:"eta_estimated,omitempty"`
	eta       string
}

func newETA(e forecast.Estimate) etaView {
	v := etaView{Estimated: e.Estimated, eta: etaText(e)}
	if e.Known {
		v.Seconds = new(e.StartsIn.Seconds())
	}
	return v
}

func etaText(e forecast.Estimate) string {
	switch {
	case e.AtLeast && e.StartsIn > 0:
		return "not before " + cli.DateTime(time.Now().Add(e.StartsIn))
	case !e.Known:
		return "unknown"
	case e.Estimated:
		return "about " + untilText(e.StartsIn)
	}
	return untilText(e.StartsIn)
}

// tickFormat has the offset, because clocks show an hour twice when DST ends.
const tickFormat = "Mon 2006-01-02 15:04:05 -07:00"

func tickText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format(tickFormat)
}

// durationText is empty for zero.
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return duration.Exact(d)
}

func zoneName(zone string) string { return cmp.Or(zone, "UTC") }
