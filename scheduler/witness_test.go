package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// run is what the witness notes when a handler begins: then the job's call leaves, which is what
// limits are for.
type run struct {
	id       string
	at       time.Time
	needs    []throttle.Need
	decision throttle.Decision
}

// note notes that a handler begins. In virtual time, if Redis's clock is this one, none begins
// later than freshTime after its permits existed. On a real machine another process may run
// between the server's own look at their age and this one.
func (st *stack) note(ctx context.Context, id string) {
	rule, _ := GetRule(ctx)
	d, _ := GetDecision(ctx)
	r := run{id, time.Now(), rule.Needs, d}
	if late := r.at.Sub(d.At.Add(d.BeginIn)); st.oneClock && d.OK() && len(d.Taken) > 0 && late > freshTime {
		st.t.Errorf("the handler of %s begins %s after its permits existed", id, late)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.runs = append(st.runs, r)
}

// wantNotOver fails if workers of one scope took more permits of a limit than it allows, or
// started more jobs than such permits explain. Meters that are lost at a moment begin anew
// then: so what was taken before is judged for itself.
func wantNotOver(t testing.TB, limit throttle.Limit, lost time.Time, workers ...*stack) {
	t.Helper()
	type part struct {
		key   string
		later bool
	}
	permits, starts := map[part][]throttletest.Admission{}, map[part][]throttletest.Admission{}
	note := func(all map[part][]throttletest.Admission, needs []throttle.Need, d throttle.Decision, at time.Time) {
		for _, n := range needs {
			if n.Limit == limit.Name {
				p := part{n.Key, !d.At.Before(lost)}
				all[p] = append(all[p], throttletest.Admission{At: at.UnixMicro(), Cost: max(1, n.Cost)})
			}
		}
	}
	for _, w := range workers {
		w.limiter.mu.Lock()
		for _, d := range w.limiter.allowed {
			for _, taken := range d.Taken {
				note(permits, []throttle.Need{taken}, d.Decision, d.At.Add(d.BeginIn))
			}
		}
		w.limiter.mu.Unlock()
		for _, r := range w.ran() {
			note(starts, r.needs, r.decision, r.at)
		}
	}
	for p, history := range permits {
		if err := throttletest.Check(limit, history); err != nil {
			t.Errorf("permits of %s|%s: %v", limit.Name, p.key, err)
		}
	}
	for p, history := range starts {
		if err := throttletest.CheckStarts(limit, history, freshTime); err != nil {
			t.Errorf("starts under %s|%s: %v", limit.Name, p.key, err)
		}
	}
}
