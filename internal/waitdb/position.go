package waitdb

import (
	"context"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Position describes the place of a waiting job for display. Estimates consider the jobs that wait
// now, not jobs enqueued later.
type Position struct {
	// Granted means that permits are reserved for the job. It is no longer in its lane: Rank is 1,
	// and Total counts the remaining jobs.
	Granted bool
	// Rank in its lane counts from 1; Total is the lane's length.
	Rank, Total int
	Lane        Lane   // without its counts
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
	args := make([]any, 0, 2*len(jobs))
	for _, job := range jobs {
		args = append(args, job.Queue, job.ID)
	}
	reply, err := db.run(ctx, positionsScript, args...).Slice()
	if err != nil {
		return nil, unavailable(err)
	}
	positions := make(map[throttle.JobID]Position, len(jobs))
	for i, job := range jobs {
		if row := reply[i].([]any); len(row) > 0 {
			positions[job] = readPosition(row)
		}
	}
	return positions, nil
}

// readPosition reads a row of lua/lanes/positions.lua.
func readPosition(row []any) Position {
	number := func(i int) int64 { return row[i].(int64) }
	return Position{
		Granted:    number(0) == 1,
		Rank:       int(number(1)),
		Total:      int(number(2)),
		StartsAt:   time.UnixMicro(number(3)),
		StartsIn:   microseconds(number(3) - number(4)),
		Bottleneck: row[5].(string),
		Lane:       newLane(row[6].(string)),
		Known:      number(7) == 1,
		Estimated:  number(0) == 0,
		Since:      time.UnixMicro(number(8)),
		WaitedFor:  microseconds(number(4) - number(8)),
	}
}
