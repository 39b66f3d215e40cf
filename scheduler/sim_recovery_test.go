package scheduler

import (
	"slices"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

// comesBack is how long after its lease has ended a dead worker's job may be away: whoever
// looks for it does so each 5 s, and sees its lease for 10 s.
const comesBack = 17 * time.Second

// pass has a second pass, and sees that no dead worker has a job for too long where another
// worker lives. One that too many have died of is left to asynq.
func (w *sim) pass() {
	time.Sleep(time.Second)
	if !w.lived(comesBack) {
		return
	}
	ctx, db := w.t.Context(), asynqdb.DB{Redis: w.hand.rdb}
	for _, queue := range []string{"one", "two"} {
		leases, _ := db.Leases(ctx, queue, time.Now().Add(-comesBack))
		for _, lease := range leases {
			if died, _ := db.Redis.HGet(ctx, asynqdb.Hash(queue, lease.ID), "crashes").Int(); died >= forgivenCrashes {
				continue
			}
			w.mu.Lock()
			w.breaksFor(lease.ID, "its worker has died, and it is not back %s after its lease had ended", time.Since(time.Unix(lease.Ends, 0)))
			w.mu.Unlock()
		}
	}
}

// lived reports whether some process has lived for so long.
func (w *sim) lived(d time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.processes, func(p *simProcess) bool {
		return !p.dead() && p.doomed == 0 && !p.leaves && time.Since(p.since) > d
	})
}
