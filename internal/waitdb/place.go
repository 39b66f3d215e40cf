package waitdb

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

// Place is where a waiting job stands: what an operator wants to know who asks why
// a job does not run. Estimates take all that waits now into account, and nothing
// that may come.
type Position struct {
	// Called is whether its turn has come and it is on its way. It has left its
	// lane then: Position is 1, and Waiting counts those who are still in it.
	Granted bool
	// Position in its lane counts from 1; Waiting is the lane's length.
	Rank, Total int
	// Lane is its lane, without its counts.
	Lane Lane
	// Binding is the meter, limit|key, that it waits longest for.
	Bottleneck string
	// Since is when it was denied first, by Redis's clock, and For is how long
	// ago that was.
	Since     time.Time
	WaitedFor time.Duration
	// Expected is when it would run, by Redis's clock, if nothing changes, and
	// In is how far off that is. They mean nothing unless Known: nobody knows
	// when a running job gives its slot back, or a paused limit goes on.
	StartsAt time.Time
	StartsIn time.Duration
	Known    bool
	// About is whether that is an estimate. It is, unless a [Forecast] has followed all
	// turns until then: [throttle.Decision] says what it leaves out.
	Estimated bool
	// AtLeast is whether In and Expected are lower bounds, of a job that is not Known.
	AtLeast bool
}

// PutBack is for how long the job should be put back now in case that nobody
// calls it: a little longer than it waits, or, up to a minute, as long as it has
// waited. Where nobody knows how long it waits, it is a minute, and then as long as
// it has waited.
func (p Position) PutBack() time.Duration {
	if p.Known {
		return max(p.StartsIn+p.StartsIn/10+5*time.Second, min(p.WaitedFor, time.Minute))
	}
	return min(max(p.WaitedFor, time.Minute), time.Hour)
}

// Waiting says where a job stands, and false if it does not wait: it runs, has
// never asked, or is unknown.
func (db *DB) Position(ctx context.Context, job throttle.JobID) (Position, bool, error) {
	places, err := db.Positions(ctx, job)
	if err != nil {
		return Position{}, false, err
	}
	place, waits := places[job]
	return place, waits, nil
}

// Places says where those of the jobs stand that wait; the others are not in the
// map. It takes one round trip. Ask for a hundred at a time at most: Redis does
// nothing else meanwhile.
func (db *DB) Positions(ctx context.Context, jobs ...throttle.JobID) (map[throttle.JobID]Position, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	reply, err := db.run(ctx, waitingScript, jobArgs(jobs)...).Slice()
	if err != nil {
		return nil, unavailable(err)
	}
	places := make(map[throttle.JobID]Position, len(jobs))
	for i, job := range jobs {
		if row := reply[i].([]any); len(row) > 0 {
			places[job] = readPlace(row)
		}
	}
	return places, nil
}

// Find returns the jobs of an ID that wait, in whatever queues: for people, who know
// a job by its ID alone. It reads all jobs that wait, a part at a time.
func (db *DB) Find(ctx context.Context, id string) (jobs []throttle.JobID, err error) {
	scan := db.rdb.HScan(ctx, db.prefix+"jobs", 0, "*\n"+script.Literal(id), 1000).Iterator()
	for scan.Next(ctx) {
		queue, found, ok := strings.Cut(scan.Val(), "\n")
		if job := (throttle.JobID{Queue: queue, ID: id}); ok && found == id && !slices.Contains(jobs, job) { // a scan may tell one twice
			jobs = append(jobs, job)
		}
		scan.Next(ctx) // the record
	}
	return jobs, unavailable(scan.Err())
}

// readPlace reads the reply of lua/lanes/positions.lua for one job.
func readPlace(row []any) Position {
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

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
