package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const ms = 1000 // microseconds

// at returns starts of jobs whose handlers start when they are admitted.
func at(moments ...int64) []start {
	var starts []start
	for i, us := range moments {
		starts = append(starts, start{job{Number: i}, us, us})
	}
	return starts
}

func TestLatenesses(t *testing.T) {
	funnel := spec{Rate: 100, Capacity: 2} // a permit each 10 ms
	hosts := spec{Rate: 1000, Capacity: 10, Hosts: 2, HostRate: 10}
	strict := spec{Rate: 2, Strict: true}
	tests := []struct {
		name     string
		spec     spec
		starts   []start
		enqueued []int64
		want     []int64
	}{
		{"the burst is there from the start", funnel, at(0, 3*ms), nil, []int64{0, 3 * ms}},
		{"then a permit each 10 ms", funnel, at(0, 0, 10*ms, 21*ms, 30*ms), nil, []int64{0, 0, 0, 1 * ms, 0}},
		{"late is counted once, not carried on", funnel, at(0, 0, 15*ms, 20*ms), nil, []int64{0, 0, 5 * ms, 0}},
		{
			"permits lost in a full funnel are not lateness", funnel, at(0, 0, 100*ms, 100*ms, 110*ms), nil,
			[]int64{0, 0, 90 * ms, 0, 0},
		},
		{"nothing is late before it is enqueued", funnel, at(50*ms, 52*ms), []int64{50 * ms, 51 * ms}, []int64{0, 1 * ms}},
		{"a handler may begin long after it was let in", funnel, []start{{job{}, 0, 7 * ms}}, nil, []int64{7 * ms}},
		{"the host's permit is needed too", hosts, []start{
			{job{Host: "a"}, 0, 0}, {job{Host: "b"}, 1 * ms, 1 * ms}, {job{Host: "a"}, 103 * ms, 103 * ms},
		}, nil, []int64{0, 1 * ms, 3 * ms}},
		{"a second after the last but one", strict, at(0, 500*ms, 1001*ms, 1500*ms), nil, []int64{0, 500 * ms, 1 * ms, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, latenesses(tt.spec, 0, tt.starts, tt.enqueued)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A permit that is taken when the replay says that it is ready is never beyond the guarantee of the
// oracle, and one that is taken sooner always is.
func TestReplayAgreesWithTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := spec{
			Rate:     rapid.IntRange(1, 3000).Draw(t, "rate"),
			Capacity: rapid.IntRange(1, 20).Draw(t, "capacity"),
			Strict:   rapid.Bool().Draw(t, "strict"),
		}
		const begin = 1_800_000_000_000_000
		replay := newReplay(s, begin)
		now := int64(begin)
		var starts []start
		for _, pause := range rapid.SliceOfN(rapid.Int64Range(0, 20*ms), 1, 200).Draw(t, "pauses") {
			ready := replay.ready()
			if ready > now {
				if over(s, append(at(ready-1), starts...)) == 0 {
					t.Fatalf("a permit at %d, a microsecond too soon, is not over", ready-1)
				}
			}
			now = max(now, ready) + pause*rapid.Int64Range(0, 1).Draw(t, "pausing")
			replay.take(now)
			starts = append(starts, at(now)...)
		}
		if n := over(s, starts); n != 0 {
			t.Fatalf("%d of %d permits taken when ready are over", n, len(starts))
		}
	})
}

func TestQuantiles(t *testing.T) {
	durations := []int64{0}
	for us := int64(1000); us <= 100_000; us += 1000 {
		durations = append(durations, us)
	}
	if p50, p99 := quantileMS(durations, 0.5), quantileMS(durations, 0.99); p50 != 50 || p99 != 99 {
		t.Errorf("quantiles of 0 to 100 ms: %v, %v, want 50 and 99", p50, p99)
	}
}
