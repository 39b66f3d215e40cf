package waitdb

import (
	"context"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Position is where a waiting job stands, for operators. Estimates take all that waits now into
// account, and nothing that may come.
type Position struct {
	// Granted says that its permits are granted and it is on its way. It has left its lane then:
	// Rank is 1, and Total counts the jobs that are still in the lane.
	Granted bool
	// Rank in its lane counts from 1; Total is the lane's length.
	Rank, Total int
	Lane        Lane   // without its counts
	Bottleneck  string // the meter, limit|key, that it waits longest for
	// Since is when it was denied first, by Redis's clock, and WaitedFor how long ago that was.
	Since     time.Time
	WaitedFor time.Duration
	// StartsAt is when it would run, by Redis's clock, if nothing changes, and StartsIn how far off
	// that is. They mean nothing unless Known: nobody knows when a running job gives its slot back,
	// or a paused limit goes on.
	StartsAt time.Time
	StartsIn time.Duration
	Known    bool
	// Estimated says that those are an estimate, as always unless a forecast has followed all turns
	// until then: [throttle.Decision] says what it leaves out.
	Estimated bool
	// AtLeast says that they are lower bounds, of a job that is not Known.
	AtLeast bool
}

// PutBack returns how long the job should be put back now in case that it is not promoted: a little
// longer than it waits, or, up to a minute, as long as it has waited. If it is unknown how long it
// waits, that is a minute, and then as long as it has waited.
func (p Position) PutBack() time.Duration {
	if p.Known {
		return max(p.StartsIn+p.StartsIn/10+5*time.Second, min(p.WaitedFor, time.Minute))
	}
	return min(max(p.WaitedFor, time.Minute), time.Hour)
}

// Position returns where a job stands, and false if it does not wait.
func (db *DB) Position(ctx context.Context, job throttle.JobID) (Position, bool, error) {
	positions, err := db.Positions(ctx, job)
	position, waits := positions[job]
	return position, waits, err
}

// Positions returns where those of the jobs stand that wait, in one round trip. Ask for a hundred
// at a time at most: Redis does nothing else meanwhile.
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
		Lane:       NewLane(row[6].(string)),
		Known:      number(7) == 1,
		Estimated:  number(0) == 0,
		Since:      time.UnixMicro(number(8)),
		WaitedFor:  microseconds(number(4) - number(8)),
	}
}
