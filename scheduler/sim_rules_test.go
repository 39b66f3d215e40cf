package scheduler

import (
	"fmt"
	"strings"
	"time"
)

// changeRule has the jobs of a lane need something else from now on.
func (w *sim) changeRule() {
	l := w.lanes[w.rand.IntN(len(w.lanes))]
	needs := w.needs()
	w.note(simEvent{kind: "rules changed", text: fmt.Sprintf("%s needs %v", l.name, needs), whose: func(o *simLane) bool { return o == l }, times: 2})
	w.mu.Lock()
	l.parsed, l.ruled = needs, time.Now()
	w.mu.Unlock()
	for _, p := range w.processes {
		if !p.dead() {
			p.server.RulesChanged()
		}
	}
	time.AfterFunc(5*time.Second, func() { w.judgeRule(l) })
}

// judgeRule sees that the jobs of a lane whose rule changed a while ago wait for what it says
// now, once nothing else keeps them from asking.
func (w *sim) judgeRule(l *simLane) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Before(w.calm.Add(time.Second)) || now.Before(w.busy.Add(5*time.Second)) || w.allBusy() {
		time.AfterFunc(2*time.Second, func() { w.judgeRule(l) })
		return
	}
	for id, job := range w.jobs {
		record := w.limiter.HGet("hg:{default}:jobs", l.queue+"\n"+id)
		if now := w.lineOf(job); job.lane == l && job.waits != "" && job.waits != now && strings.HasSuffix(record, "\n"+job.waits) {
			w.breaksFor(id, "it waits in %q, and by its rule in %q", job.waits, now)
		}
	}
}
