package scheduler

import (
	"fmt"
	"time"
)

// changeRule has the jobs of a lane need something else from now on.
func (w *sim) changeRule() {
	l := w.lanes[w.rand.IntN(len(w.lanes))]
	needs := w.needs()
	w.note(simEvent{kind: "rules changed", text: fmt.Sprintf("%s needs %v", l.name, needs), whose: func(o *simLane) bool { return o == l }, loosens: true, times: 2})
	w.mu.Lock()
	defer w.mu.Unlock()
	l.parsed, l.ruled = needs, time.Now()
}
