package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/inspect"
)

// The last 15 minutes, in parts of 10 seconds: a minute less than the stream in Redis
// reaches back.
const (
	part  = 10 * time.Second
	parts = 90
)

// denial is one call that was denied, for example: a process tells at most one a second
// for each limit.
type denial struct {
	// At is when its process wrote it down, by Redis's clock: up to a second later.
	At    time.Time
	Limit string
	history.Denial
}

// series is what the processes said they did, by limit. A limit's row is a ring of
// parts: part i of time stands at i modulo parts, so that nothing moves as time does.
//
// It is bounded by names: a summary has fifty limits at most and one called other, and
// a limit of which nothing was heard for 15 minutes is forgotten. A limit is 4 kB.
// state guards it, so it has no lock of its own.
type series struct {
	since   string // the last summary that was read, by its ID in the stream
	last    int64  // the newest part, as a number since 1970
	limits  map[string]*[parts]history.Limited
	recent  []history.Summary // those that rates are made of
	denials []denial          // the newest first
}

// move makes room up to a moment, and forgets what is too old, limits too of which
// nothing was heard for so long. After a pause of more than the whole row it begins
// anew.
func (s *series) move(now time.Time) {
	to := now.UnixMilli() / part.Milliseconds()
	if s.last == 0 || to-s.last > parts {
		s.last = to - parts
	}
	for ; s.last < to; s.last++ {
		for name, row := range s.limits {
			// The part that begins stands where the oldest stood.
			row[(s.last+1)%parts] = history.Limited{}
			if *row == ([parts]history.Limited{}) {
				delete(s.limits, name)
			}
		}
	}
	s.recent = slices.DeleteFunc(s.recent, func(of history.Summary) bool { return of.At.Before(now.Add(-inspect.Recent)) })
}

// add notes what a process said. What is older than the row, or in a part for which
// move has made no room, is left out.
func (s *series) add(at time.Time, limit string, l history.Limited) {
	i := at.UnixMilli() / part.Milliseconds()
	if i > s.last || i <= s.last-parts {
		return
	}
	if s.limits[limit] == nil {
		s.limits[limit] = &[parts]history.Limited{}
	}
	s.limits[limit][i%parts] = s.limits[limit][i%parts].Plus(l)
}

// maxDenials bounds the denials that are remembered. They are examples: how many there
// were the tallies say.
const maxDenials = 50

// deny notes a denial. They come oldest first. Snapshots have the list, so it is made anew.
func (s *series) deny(d denial) {
	s.denials = append([]denial{d}, s.denials[:min(len(s.denials), maxDenials-1)]...)
}

// row is a limit's last 15 minutes, the oldest first, and when they begin.
func (s *series) row(limit string) (row []history.Limited, from time.Time) {
	row = make([]history.Limited, parts)
	if kept := s.limits[limit]; kept != nil {
		for i := range row {
			row[i] = kept[(s.last+1+int64(i))%parts]
		}
	}
	return row, time.UnixMilli((s.last - parts + 1) * part.Milliseconds())
}

// polyline is a curve in the form of SVG: x,y for each number, y from the upper edge of a box
// of that size, which stands for top.
func polyline(numbers []float64, width, height, top float64) string {
	var points strings.Builder
	// A tenth of a unit is less than a pixel: more digits would only be sent.
	for i, n := range numbers {
		fmt.Fprintf(&points, "%.1f,%.1f ", float64(i)*width/float64(len(numbers)-1), level(n, height, top))
	}
	return strings.TrimSpace(points.String())
}

// level is where a number lies in such a box. A curve of zeros lies on the lower edge.
func level(n, height, top float64) float64 {
	if top == 0 {
		return height - 1
	}
	return height - 1 - (height-2)*n/top
}
