package waitdb

import (
	"context"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/script"
)

// LeadPage is how many lanes one Lead names at most.
const LanesPage = 1000

// Lead is what a process learns when it takes or renews the lease.
type Leadership struct {
	// Held is whether it gives turns now. If not, Until is how long the other
	// process keeps it, and nothing else is known.
	Held  bool
	Until time.Duration
	// Fresh is whether the lease was taken anew, or Redis has lost what the process
	// knew: then Made begins with the first of all lanes.
	Fresh bool
	// Now is Redis's clock.
	Now int64
	// Changes counts the changes to meters that words tell of.
	Changes int64
	// Epoch names the scope's data: another one means that they were lost.
	Epoch string
	// Made are lanes that got their first job, by number.
	NewLanes []NumberedLane
	// Late is when the time of the next job is up, by Redis's clock; 0 where none has to
	// end.
	NextDeadline int64
}

// Numbered is a lane and the number that it got with its first job.
type NumberedLane struct {
	Lane   string
	Number int64
}

// Lead takes or renews the lease, for that long, for a process that knows all
// lanes up to a number. Epoch is a random name for the scope's data, if they have none yet.
func (db *DB) BecomeLeader(ctx context.Context, process string, lease time.Duration, seen int64, epoch string) (Leadership, error) {
	reply, err := db.run(ctx, leadScript, process, lease.Milliseconds(), seen, epoch, LanesPage, new(script.Sent)).Slice()
	if err != nil {
		return Leadership{}, err
	}
	if reply[0].(int64) == 0 {
		return Leadership{Until: time.Duration(max(0, reply[1].(int64))) * time.Microsecond}, nil
	}
	l := Leadership{Held: true, Fresh: reply[1].(int64) == 1, Now: reply[2].(int64), Changes: reply[3].(int64), Epoch: reply[4].(string)}
	made := reply[5].([]any)
	for i := 0; i < len(made); i += 2 {
		number, _ := strconv.ParseInt(made[i+1].(string), 10, 64)
		l.NewLanes = append(l.NewLanes, NumberedLane{made[i].(string), number})
	}
	l.NextDeadline = reply[6].(int64)
	return l, nil
}

// Resign gives the lease back if the process holds it, and tells the other processes, so
// that one of them takes it at once.
func (db *DB) StepDown(ctx context.Context, process string) error {
	return db.run(ctx, resignScript, process).Err()
}
