// Package dispatcher gives the jobs that wait in a scope their turns: a loop around
// internal/fairqueue, which decides whose turn it is, and Redis, which admits.
package dispatcher

import (
	"log/slog"
	"math"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
)

const (
	// The process that gives turns renews its lease and reads what it may not have
	// heard every heartbeat; or, where nothing is due, when something is, and
	// every Quiet at least.
	heartbeat = 500 * time.Millisecond
	// Quiet is how far apart two heartbeats are at most.
	MaxHeartbeat = 5 * time.Second
	// standby is how much later than the end of another's lease a process tries
	// to take it.
	standby = 200 * time.Millisecond
	// Grace is for how long after that the lease still lives: if the process dies,
	// another takes over then.
	Grace = time.Second
	// Pause is how long a process leaves Redis alone after an error.
	ErrorPause = time.Second
	// batch bounds a call of Redis to about a millisecond.
	batch = 64
	// Page is how many lanes or jobs are read in one call.
	PageSize = 100
	// interval is the least time between two rounds, and grantInterval that between two
	// in which turns are granted: longer is cheaper, shorter is sooner. Turns are granted
	// ahead, and so together; jobs are told when their permits exist.
	interval      = 2 * time.Millisecond
	grantInterval = 5 * time.Millisecond
)

// A Config is what a dispatcher works with.
type Config struct {
	Waits             *waitdb.DB // the limiter, and who waits for its permits
	DB                asynqdb.DB // of the queues
	Log               *slog.Logger
	Limits            *redishealth.Monitor // of the limiter's Redis
	Queues            *redishealth.Monitor // of the queues' Redis
	ReconcileInterval time.Duration        // between two comparisons of what waits with asynq
	MaxHeartbeat      time.Duration        // between two heartbeats where nothing is due
	History           *stats.Recorder
	// SlotsWanted has this process's server say how many worker slots it has free, if it
	// serves one of these queues.
	SlotsRequested func(queues []string)
}

// dispatcher gives the lanes of a scope their turns. Every process runs one; the one
// that holds the lease works. It has the core decide whose turn it is and Redis
// grant the turns, and moves called jobs to the head of their queues.
//
// It can be late, die, or be two for a moment: only meters admit, so whatever it
// gets wrong nothing goes over. What it must not do is to forget somebody. So all
// that it knows is in Redis, too: lanes are numbered, and read from the last number
// that it knows; and words, which Redis may lose, only make it look sooner.
//
// A round is: renew the lease and learn what is new if it is time, tell those whose
// time is up, take back what is reserved for those who did not come, try the turns
// that are due, move the called jobs, write what has changed for newcomers, and look
// after put-backs. Then it sleeps until the core or the lease has something due, or a word comes.
//
// All methods are called by one goroutine.
type dispatcher struct {
	Config
	limits redishealth.Watch
	queues redishealth.Watch

	process string
	core    *fairqueue.Core // nil while another process gives turns
	clock   clock
	epoch   string    // of the data that this process saw last
	seen    int64     // number of the last lane that the core knows
	changes int64     // number of the last change to a meter that it knows
	missed  int64     // number of a change that it had not heard of at the last heartbeat
	listens bool      // it hears words
	lead    time.Time // when to take or renew the lease
	taken   time.Time // until when another process keeps it at least
	late    time.Time // when the time of the next job is up
	weighed time.Time // when it read how queues take turns
	granted time.Time // when turns were granted last
	asked   time.Time // when servers were last asked for their free slots
	upkeep  upkeep
}

// clock tells Redis's time between its answers. It never runs ahead of Redis's.
type clock struct {
	redis int64     // what the last answer said, in microseconds
	at    time.Time // when that came
}

// now is at most what Redis's clock shows, since answers take time to come: a turn
// that is due by it is due by Redis's.
func (c clock) now() int64 { return c.redis + time.Since(c.at).Microseconds() }

// local is a moment of Redis's clock by this process's. The core's "never" is a
// moment so far off that a Duration cannot hold it.
func (c clock) local(us int64) time.Time {
	if us-c.redis > math.MaxInt64/1000 {
		return c.at.Add(math.MaxInt64)
	}
	return c.at.Add(time.Duration(us-c.redis) * time.Microsecond)
}
