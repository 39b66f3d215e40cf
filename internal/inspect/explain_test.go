package inspect

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/throttle"
)

// limit is a limit without keys at which so many jobs wait, and that has so many of
// its ten permits left.
func limit(name string, waiting, left int) Limit {
	l := Limit{Limit: throttle.Limit{Name: name, Kind: throttle.SlidingLog, Rate: throttle.PerSecond(10)}, Demand: history.Demand{Waiting: waiting, Since: time.Unix(1, 0)}}
	m := throttle.Meter{Limit: name, Capacity: 10, Left: left, Wanted: waiting, Known: true}
	if left == 0 {
		m.NextIn = time.Second
	}
	l.Meters = []throttle.Meter{m}
	return l
}

// passing is a limit at which jobs wait for a moment only.
func passing(name string, waiting, left int) Limit {
	l := limit(name, waiting, left)
	l.Passing = true
	return l
}

// binding is a limit that its jobs will wait for longer than for others.
func binding(name string, waiting, left int) Limit {
	l := limit(name, waiting, left)
	l.Binds = true
	return l
}

// TestExplain: jobs wait for what has no permits. Where that does not account for
// all of them, a limit that has some is said not to be full, if that lasts.
func TestExplain(t *testing.T) {
	type told struct {
		waiting, spare int
		state          State
	}
	for name, tt := range map[string]struct {
		jobs  int
		turns [][]Limit
		want  []told // after the last turn
	}{
		"full": {10, [][]Limit{{limit("api", 10, 0)}}, []told{{10, 0, "saturated"}}},
		"another limit explains it": {
			10,
			[][]Limit{{limit("api", 10, 0), limit("all", 10, 3)}},
			[]told{{10, 0, "saturated"}, {0, 0, "idle"}},
		},
		"nothing explains it, for a moment": {10, [][]Limit{{limit("api", 10, 3)}}, []told{{10, 0, "saturated"}}},
		"nothing explains it, for long": {
			10, [][]Limit{{limit("api", 10, 3)}, {limit("api", 10, 2)}, {limit("api", 10, 3)}}, []told{{10, 3, "not full"}},
		},
		"each for a moment": {
			2, [][]Limit{{passing("api", 2, 3)}, {passing("api", 1, 2)}, {passing("api", 2, 3)}}, []told{{2, 0, "flowing"}},
		},
		"another limit explains all but a moment": {
			10, [][]Limit{{limit("host", 10, 0), passing("api", 10, 0)}}, []told{{10, 0, "saturated"}, {0, 0, "idle"}},
		},
		"another limit is full now, and this one will be": {
			10, [][]Limit{{limit("second", 10, 0), binding("day", 10, 3)}}, []told{{10, 0, "saturated"}, {10, 0, "will be used up"}},
		},
		"full a moment ago": {2, [][]Limit{{passing("api", 2, 0)}}, []told{{2, 0, "saturated"}}},
		"some of it": {
			10,
			[][]Limit{{limit("api", 7, 0), limit("all", 10, 3)}, {limit("api", 7, 0), limit("all", 10, 3)}, {limit("api", 7, 0), limit("all", 10, 3)}},
			[]told{{7, 0, "saturated"}, {3, 3, "not full"}},
		},
		"used up for a moment": {
			10,
			[][]Limit{{limit("api", 10, 0), limit("all", 10, 3)}, {limit("api", 10, 0), limit("all", 10, 0)}},
			[]told{{10, 0, "saturated"}, {0, 0, "idle"}},
		},
		"used up": {
			20,
			[][]Limit{{limit("api", 10, 0), limit("all", 10, 3)}, {limit("api", 10, 0), limit("all", 10, 0)}, {limit("api", 10, 0), limit("all", 10, 0)}},
			[]told{{10, 0, "saturated"}, {10, 0, "saturated"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := &Judge{}
			var limits []Limit
			for _, limits = range tt.turns {
				j.explain(limits, tt.jobs)
			}
			for i, want := range tt.want {
				limits[i].judge()
				if got := (told{limits[i].Waiting, limits[i].Spare, limits[i].State}); got != want {
					t.Errorf("%s: %+v, want %+v", limits[i].Name, got, want)
				}
				if limits[i].Since.IsZero() != (want.waiting == 0) {
					t.Errorf("%s: since %s, with %d waiting", limits[i].Name, limits[i].Since, want.waiting)
				}
			}
		})
	}
}
