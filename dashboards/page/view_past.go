package page

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/history"
)

type pastSpan struct {
	Name, Text string
	span, step time.Duration
}

var pastSpans = []pastSpan{
	{"hour", "1 hour", time.Hour, time.Minute},
	{"day", "24 hours", 24 * time.Hour, 5 * time.Minute},
	{"month", "30 days", history.Reach, time.Hour},
}

type pastData struct {
	Spans []pastSpan
	Of    pastSpan
	history.Past
	Curves []pastCurve
}

// pastCurve is a row of one number for each step.
type pastCurve struct {
	Title, Class string
	Points       string // as SVG has them
	Most, Last   string // the highest, and the last
}

// makePast makes the view of what became of jobs: a few dozen hashes at most, read in one
// round trip.
func makePast(ctx context.Context, p *Page, s *snapshot, at place) (any, error) {
	d := pastData{Spans: pastSpans, Of: pastSpans[1]}
	for _, span := range pastSpans {
		if span.Name == at.Get("past") {
			d.Of = span
		}
	}
	var err error
	if d.Past, err = history.ReadPast(ctx, p.Redis, p.Scope, s.Now.Add(-d.Of.span), s.Now, d.Of.step); err != nil {
		return nil, err
	}
	found := d.Slices[:len(d.Slices)-1] // the last is not over yet
	asSpan := func(seconds float64) string { return span(time.Duration(seconds * float64(time.Second))) }
	waited := func(seconds *float64) float64 {
		if seconds == nil {
			return 0
		}
		return *seconds
	}
	d.Curves = []pastCurve{
		newCurve("Done a second", "", found, func(s history.Slice) float64 { return float64(s.Done) / d.Step }, perSecond),
		newCurve("Jobs failed a second", "bad", found, func(s history.Slice) float64 { return float64(s.Failed) / d.Step }, perSecond),
		newCurve("Half of those that waited did so for at most", "", found, func(s history.Slice) float64 { return waited(s.WaitP50) }, asSpan),
		newCurve("99 of a hundred for at most", "", found, func(s history.Slice) float64 { return waited(s.WaitP99) }, asSpan),
	}
	return d, nil
}

// The size of a curve of the history, in its own units, which the template's viewBox has too.
const pastWidth, pastHeight = 600.0, 60.0

// newCurve draws a number of each slice, from 0 on.
func newCurve(title, class string, of []history.Slice, number func(history.Slice) float64, text func(float64) string) pastCurve {
	numbers := make([]float64, len(of))
	for i, s := range of {
		numbers[i] = number(s)
	}
	most := slices.Max(numbers)
	return pastCurve{title, class, polyline(numbers, pastWidth, pastHeight, most), text(most), text(numbers[len(numbers)-1])}
}
