package fairqueue

import (
	"fmt"
	"testing"
)

func (w *simulation) pass(t *testing.T, seconds int64) {
	t.Helper()
	w.run(seconds * second)
	if w.broken != "" {
		t.Error(w.broken)
	}
}

// TestHold_SlotNotKeptIdle: a slot is kept for a job that waits for another limit only where that
// is there before the next slot is free, however long leases are. Else slots would be idle
// while jobs wait that need nothing else; and where jobs run for long, what a funnel gives.
func TestHold_SlotNotKeptIdle(t *testing.T) {
	for _, tt := range []struct {
		name           string
		takes          int64 // a job
		host           int64 // the time between two calls of one
		hosts          int
		least          int // jobs that need a slot, in 20 s
		leastHosts     int // of those, jobs of hosts
		leastElsewhere int // jobs that need a host alone
	}{
		{"jobs are short", second / 10, second, 20, 1900, 380, 0},
		{"jobs are short, and few hosts", second / 10, 2 * second, 5, 1900, 40, 0},
		{"jobs are long", 2 * second, second / 100, 1, 90, 40, 1800},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newSimulation(1)
			pool := w.meter(simMeter{name: "pool", interval: tt.takes, capacity: 10, lease: 600 * second})
			alone, elsewhere, ofHosts := w.lane("q", one(pool)...), (*simLane)(nil), []*simLane{}
			w.enqueue(alone, 100_000)
			for i := range tt.hosts {
				host := w.meter(simMeter{name: fmt.Sprintf("host%d", i), interval: tt.host, capacity: 1})
				ofHosts = append(ofHosts, w.lane("q", one(host, pool)...))
				w.enqueue(ofHosts[i], 100_000)
				elsewhere = w.lane("q", one(host)...)
				if tt.leastElsewhere > 0 {
					w.enqueue(elsewhere, 100_000)
				}
			}
			w.pass(t, 20)
			done := 0
			for _, l := range ofHosts {
				done += l.done
			}
			if alone.done+done < tt.least || done < tt.leastHosts || elsewhere.done < tt.leastElsewhere {
				t.Errorf("%d jobs had a slot, %d of them of hosts, and %d a host alone; want %d, %d, %d", alone.done+done, done, elsewhere.done, tt.least, tt.leastHosts, tt.leastElsewhere)
			}
		})
	}
}

// TestExhaustedQuota_AskedSeldom: while a quota is used up, its meter is asked less and less.
func TestExhaustedQuota_AskedSeldom(t *testing.T) {
	w := newSimulation(1)
	day := w.meter(simMeter{name: "day", window: 86_400 * second, interval: 43 * second, capacity: 2000})
	lanes := []*simLane{}
	for i := range 20 {
		lanes = append(lanes, w.lane(fmt.Sprintf("q%d", i), one(day)...))
		w.enqueue(lanes[i], 150)
	}
	w.pass(t, 3600)
	before := w.refused
	w.pass(t, 2*3600)
	if asked := w.refused - before; asked > 3600/30+1 {
		t.Errorf("asked %d times in an hour", asked)
	}
	w.pass(t, 86_400+60)
	for _, l := range lanes {
		if l.done != 150 {
			t.Errorf("%s ran %d of 150 jobs", l.name, l.done)
		}
	}
}

// TestOneLane_FewCalls: one lane alone costs few questions.
func TestOneLane_FewCalls(t *testing.T) {
	w := newSimulation(1)
	l := w.lane("q", one(w.rate("api", 1000, 100))...)
	w.enqueue(l, 20_000)
	w.pass(t, 60)
	t.Logf("%d jobs: %s, %d batches", l.done, w.figures, w.batches)
	if l.done != 20_000 || w.batches > 20_000/10 || w.refused+w.skipped > w.batches {
		t.Errorf("%d jobs ran, %s, in %d batches", l.done, w.figures, w.batches)
	}
}
