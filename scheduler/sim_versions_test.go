package scheduler

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/waitdb"
)

// reserve has a worker of another version, which was cut off, reserve permits of a meter for
// a job that nobody knows of.
func (w *sim) reserve() {
	l := w.lanes[w.rand.IntN(len(w.lanes))]
	need := l.parsed[w.rand.IntN(len(l.parsed))]
	meter, permits := need.Limit+"|"+need.Key, capacityOf(w.inForce(need.Limit))
	w.note(simEvent{kind: "permits reserved", text: fmt.Sprintf("%d of %s are reserved for nobody", permits, meter), whose: lanesAt(need)})
	w.hand.must(w.hand.limits.HIncrBy(w.t.Context(), "hg:{default}:meters", meter, int64(permits)).Err())
}

// update has all processes leave, which were of a version that counted time in
// seconds, and as many of this one start. Beside others none of another version may.
func (w *sim) update() {
	var old []*simProcess
	w.mu.Lock()
	for _, p := range w.processes {
		if !p.dead() && (p.doomed > 0 || time.Now().Before(p.since)) {
			w.mu.Unlock()
			return
		}
		if !p.dead() && !p.leaves {
			old = append(old, p)
		}
	}
	for _, p := range old {
		p.leaves = true
	}
	w.mu.Unlock()
	w.note(simEvent{kind: "versions changed", text: "a later version starts, once all processes have left", times: 2})
	for _, version := range []int{waitdb.Version - 1, waitdb.Version + 1} {
		if w.gives() && w.claimed(version) {
			w.breaks(w.lanes, w.now(), w.now(), "a process that keeps data of version %d starts beside others", version)
		}
	}
	for _, p := range old {
		p.server.Shutdown()
	}
	for w.gives() { // its answer that nobody does any more got lost
		time.Sleep(time.Second)
	}
	w.hand.makeOld()
	w.mu.Lock()
	for _, job := range w.jobs { // whoever waits does so anew
		job.since = time.Time{}
	}
	w.mu.Unlock()
	w.note(simEvent{kind: "versions changed", text: "it starts"})
	for range old {
		w.startProcess()
	}
}

// gives reports whether some process gives turns.
func (w *sim) gives() bool { return w.limiter.Exists("hg:{default}:leader") }

// claimed reports whether a process of a version may start.
func (w *sim) claimed(version int) bool {
	ctx := w.t.Context()
	data := w.hand.rdb.Get(ctx, redishealth.DataKey).Val()
	reply, err := script.New("lanes/claim").Run(ctx, w.hand.limits, []string{"hg:{default}:"}, data, "", "", claimLife.Milliseconds(), version).Slice()
	w.hand.must(err)
	return reply[1] == int64(0)
}
