package waitdb

import (
	"context"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Position describes the place of a waiting job for display. Estimates consider the jobs that wait
// now, not jobs enqueued later.
type Position struct {
	// Granted reports whether the job was granted and has left its lane. Rank is then 1, and Total
	// counts the remaining jobs of the lane.
	Granted bool
	// Rank in its lane counts from 1; Total is the lane's length.
	Rank, Total int
	Lane        Lane   // without Waiting, Granted and First
	Bottleneck  string // the meter, limit|key, that the job waits longest for
	// Since is when the job was first denied, by Redis's clock, and WaitedFor how long ago that was.
	Since     time.Time
	WaitedFor time.Duration
	// StartsAt is the estimated start by Redis's clock, and StartsIn the time until that start. If
	// Known and AtLeast are both false, the two values mean nothing, because the start depends on
	// the unknown end of a running job or of a pause.
	StartsAt time.Time
	StartsIn time.Duration
	Known    bool
	// Estimated is false if a forecast has simulated all turns up to the start, or if Granted.
	Estimated bool
	AtLeast   bool // StartsAt and StartsIn are lower bounds; Known is false
}

// PutBack returns the delay after which asynq should run the job if its promotion is lost: slightly
// more than the estimated wait, and at least the time waited so far, up to a minute. If the wait is
// unknown, it is the time waited so far, from a minute to an hour.
func (p Position) PutBack() time.Duration {
	if p.Known {
		return max(p.StartsIn+p.StartsIn/10+5*time.Second, min(p.WaitedFor, time.Minute))
	}
	return min(max(p.WaitedFor, time.Minute), time.Hour)
}

// Position returns the position of a waiting or granted job, and false for any other job.
func (db *DB) Position(ctx context.Context, job throttle.JobID) (Position, bool, error) {
	positions, err := db.Positions(ctx, job)
	position, waits := positions[job]
	return position, waits, err
}

// Positions returns the positions of those jobs that wait or are granted. Pass at most 100 jobs,
// because Redis serves no other client during the call.
func (db *DB) Positions(ctx context.Context, jobs ...throttle.JobID) (map[throttle.JobID]Position, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	reply, err := db.run(ctx, positionsScript, jobs).Slice()
	positions := make(map[throttle.JobID]Position, len(jobs))
	for i := range reply {
		if r := row(reply).row(i); len(r) > 0 {
			positions[jobs[i]] = Position{
				Granted: r.is(0), Rank: int(r.us(1)), Total: int(r.us(2)), Lane: newLane(r.text(6)), Bottleneck: r.text(5),
				Since: time.UnixMicro(r.us(8)), WaitedFor: microseconds(r.us(4) - r.us(8)),
				StartsAt: time.UnixMicro(r.us(3)), StartsIn: microseconds(r.us(3) - r.us(4)), Known: r.is(7), Estimated: !r.is(0),
			}
		}
	}
	return positions, unavailable(err)
}
