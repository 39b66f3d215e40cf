package page

import (
	"fmt"
	"slices"
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

// TestSlowest: the key whose last job is the limit's last is among those that are
// looked at, whether many wait for it, or its rate is low, or it is blocked.
func TestSlowest(t *testing.T) {
	w := &wanted{}
	for i := range 1000 {
		w.Keys = append(w.Keys, throttle.Want{Limit: "host", Key: fmt.Sprint("k", i), Permits: 1000 - i})
	}
	own := func(key string, o throttle.Override, share float64) throttle.KeyState {
		return throttle.KeyState{Key: key, Override: o, Share: share}
	}
	limit := throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}
	w.slowest(limit, []throttle.KeyState{
		own("k2", throttle.Override{Rate: throttle.Every(time.Minute)}, 1), // one of the busiest anyway
		own("k700", throttle.Override{Rate: throttle.Every(time.Minute)}, 1),
		own("k800", throttle.Override{}, 0.5),
		own("k900", throttle.Override{Rate: throttle.PerSecond(100)}, 1),
		own("gone", throttle.Override{Rate: throttle.Every(time.Hour)}, 1),
	}, []throttle.Blocked{{Key: "k999", For: 10 * time.Hour}, {Key: "k998", For: time.Second}})
	var got []string
	for _, want := range w.Slow {
		got = append(got, want.Key)
	}
	if want := []string{"k999", "k700", "k800", "k998", "k900"}; !slices.Equal(got, want) {
		t.Errorf("the slowest are %v, want %v", got, want)
	}
	if text := ownRate(w.Own["k700"]); text != "1/m" {
		t.Errorf("k700 goes by %q, want 1/m", text)
	}
}
