package page

import (
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// row is a limit without keys at which so many jobs wait, and that has so many of
// its ten permits left.
func row(name string, waiting, left int) limitRow {
	r := limitRow{Limit: throttle.Limit{Name: name, Kind: throttle.SlidingLog, Rate: throttle.PerSecond(10)}, Waiting: waiting, Since: time.Unix(1, 0)}
	m := throttle.Meter{Limit: name, Capacity: 10, Left: left, Wanted: waiting, Known: true}
	if left == 0 {
		m.NextIn = time.Second
	}
	r.Meters = []throttle.Meter{m}
	return r
}

// passing is a row at which jobs wait for a moment only.
func passing(name string, waiting, left int) limitRow {
	r := row(name, waiting, left)
	r.Passing = true
	return r
}

// binding is a row that its jobs will wait for longer than for others.
func binding(name string, waiting, left int) limitRow {
	r := row(name, waiting, left)
	r.Binds = true
	return r
}

// TestExplain: jobs wait for what has no permits. Where that does not account for
// all of them, a limit that has some is said not to be full, if that lasts.
func TestExplain(t *testing.T) {
	type told struct {
		waiting, spare int
		state          string
	}
	for name, tt := range map[string]struct {
		jobs  int
		turns [][]limitRow
		want  []told // after the last turn
	}{
		"full": {10, [][]limitRow{{row("api", 10, 0)}}, []told{{10, 0, "saturated"}}},
		"another limit explains it": {
			10,
			[][]limitRow{{row("api", 10, 0), row("all", 10, 3)}},
			[]told{{10, 0, "saturated"}, {0, 0, "idle"}},
		},
		"nothing explains it, for a moment": {10, [][]limitRow{{row("api", 10, 3)}}, []told{{10, 0, "saturated"}}},
		"nothing explains it, for long": {
			10, [][]limitRow{{row("api", 10, 3)}, {row("api", 10, 2)}, {row("api", 10, 3)}}, []told{{10, 3, "not full"}},
		},
		"each for a moment": {
			2, [][]limitRow{{passing("api", 2, 3)}, {passing("api", 1, 2)}, {passing("api", 2, 3)}}, []told{{2, 0, "flowing"}},
		},
		"another limit explains all but a moment": {
			10, [][]limitRow{{row("host", 10, 0), passing("api", 10, 0)}}, []told{{10, 0, "saturated"}, {0, 0, "idle"}},
		},
		"another limit is full now, and this one will be": {
			10, [][]limitRow{{row("second", 10, 0), binding("day", 10, 3)}}, []told{{10, 0, "saturated"}, {10, 0, "will be used up"}},
		},
		"full a moment ago": {2, [][]limitRow{{passing("api", 2, 0)}}, []told{{2, 0, "saturated"}}},
		"some of it": {
			10,
			[][]limitRow{{row("api", 7, 0), row("all", 10, 3)}, {row("api", 7, 0), row("all", 10, 3)}, {row("api", 7, 0), row("all", 10, 3)}},
			[]told{{7, 0, "saturated"}, {3, 3, "not full"}},
		},
		"used up for a moment": {
			10,
			[][]limitRow{{row("api", 10, 0), row("all", 10, 3)}, {row("api", 10, 0), row("all", 10, 0)}},
			[]told{{10, 0, "saturated"}, {0, 0, "idle"}},
		},
		"used up": {
			20,
			[][]limitRow{{row("api", 10, 0), row("all", 10, 3)}, {row("api", 10, 0), row("all", 10, 0)}, {row("api", 10, 0), row("all", 10, 0)}},
			[]told{{10, 0, "saturated"}, {10, 0, "saturated"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state{}
			var rows []limitRow
			for _, rows = range tt.turns {
				s.explain(rows, tt.jobs)
			}
			for i, want := range tt.want {
				rows[i].judge(time.Unix(100, 0))
				if got := (told{rows[i].Waiting, rows[i].Spare, rows[i].State}); got != want {
					t.Errorf("%s: %+v, want %+v", rows[i].Name, got, want)
				}
				if rows[i].Since.IsZero() != (want.waiting == 0) {
					t.Errorf("%s: since %s, with %d waiting", rows[i].Name, rows[i].Since, want.waiting)
				}
			}
		})
	}
}
