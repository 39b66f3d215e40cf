package dispatcher

import (
	"context"
	"math"
	"time"

	"github.com/headgate/headgate/throttle"
)

// patience notes when the time of the next job is up, by Redis's clock; 0 is never.
func (d *dispatcher) patience(us int64) {
	if us == 0 {
		us = math.MaxInt64
	}
	d.late = d.clock.local(us)
}

// tellLate has jobs ask whose time is up: they are told that it is too late. Redis
// takes them out of their lanes, so that those behind them have their turns, and names
// who does not come again.
func (d *dispatcher) tellLate(ctx context.Context) error {
	for began := time.Now(); d.core != nil && !time.Now().Before(d.late); {
		late, next, err := d.Waits.ExpireWaits(ctx, PageSize)
		if d.limits.Note(ctx, err) != nil {
			return err
		}
		d.late = time.Now().Add(next) // Redis's clock may have stepped back
		jobs := make([]throttle.JobID, len(late))
		for i, j := range late {
			jobs[i] = throttle.JobID{Queue: j.Queue, ID: j.ID}
		}
		if _, err := d.promote(ctx, jobs); err != nil {
			return err
		}
		if time.Since(began) > workFor {
			break // others have turns
		}
	}
	return nil
}
