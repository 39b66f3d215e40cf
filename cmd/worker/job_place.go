package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/scheduler/lanes"
)

// place is where a waiting job stands, in JSON. The expected time is left out
// where nobody knows it.
type place struct {
	Position   int        `json:"position"`
	LaneLength int        `json:"lane_length"`
	Lane       []cli.Text `json:"lane"`
	Fair       cli.Text   `json:"fair,omitempty"`
	Weight     int        `json:"weight,omitempty"` // of that key
	Binding    cli.Text   `json:"binding"`
	Since      time.Time  `json:"since"`
	Expected   time.Time  `json:"expected,omitzero"`
	ExpectedIn *float64   `json:"expected_in_s,omitempty"`
	About      bool       `json:"about,omitempty"` // whether that is an estimate

	lanes.Place `json:"-"`
}

func newPlace(p lanes.Place) *place {
	j := &place{
		Position: p.Position, LaneLength: p.Waiting, Binding: cli.Text(p.Binding), Since: p.Since, Place: p,
	}
	for _, meter := range p.Lane.Meters {
		j.Lane = append(j.Lane, cli.Text(meter))
	}
	if p.Lane.Fair != "" {
		j.Fair, j.Weight = cli.Text(p.Lane.Fair), p.Lane.Weight
	}
	if p.Known {
		in := p.In.Seconds()
		j.Expected, j.ExpectedIn, j.About = p.Expected, &in, p.About
	}
	return j
}

func (p *place) lines() [][2]string {
	if p == nil {
		return nil
	}
	var lane []string
	for _, meter := range p.Place.Lane.Meters {
		lane = append(lane, meterName(meter))
	}
	position := fmt.Sprintf("%d of %d", p.Position, p.LaneLength)
	if p.Called {
		position = "called: it is on its way"
	}
	expected := in(p.In)
	if p.Place.About {
		expected = "about " + expected
	}
	if !p.Known {
		expected = "nobody knows: a running job must end, or a limit be resumed"
	}
	if l := p.Place.Lane; l.Fair != "" {
		lane = append(lane, fmt.Sprintf("%s of weight %d", l.Fair, l.Weight))
	}
	return [][2]string{
		{"lane", strings.Join(lane, " + ")},
		{"position", position},
		{"binding", meterName(p.Place.Binding)},
		{"waits", p.For.Round(time.Second).String()},
		{"expected", expected},
	}
}
