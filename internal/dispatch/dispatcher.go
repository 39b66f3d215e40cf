package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

const (
	// The process that gives turns renews its lease and reads what it may not have
	// heard every heartbeat; or, where nothing is due, when something is, and
	// every Quiet at least.
	heartbeat = 500 * time.Millisecond
	Quiet     = 5 * time.Second
	// standby is how much later than the end of another's lease a process tries
	// to take it.
	standby = 200 * time.Millisecond
	// Grace is for how long after that the lease still lives: if the process dies,
	// another takes over then.
	Grace = time.Second
	// Pause is how long a process leaves Redis alone after an error.
	Pause = time.Second
	// batch bounds a call of Redis to about a millisecond.
	batch = 64
	// Page is how many lanes or jobs are read in one call.
	Page = 100
	// interval is the least time between two rounds, and grantInterval that between two
	// in which turns are granted: longer is cheaper, shorter is sooner. Turns are granted
	// ahead, and so together; jobs are told when their permits exist.
	interval      = 2 * time.Millisecond
	grantInterval = 5 * time.Millisecond
)

// A Config is what a dispatcher works with.
type Config struct {
	Limiter Limiter
	Store   *turns.Store
	DB      asynqdb.DB // of the queues
	Log     *slog.Logger
	Limits  *outage.Log   // of the limiter's Redis
	Queues  *outage.Log   // of the queues' Redis
	Passes  time.Duration // between two comparisons of what waits with asynq
	Quiet   time.Duration // between two heartbeats where nothing is due
	History *history.Recorder
}

// Limiter is what a dispatcher asks of who waits. [lanes.Lanes] is one.
type Limiter interface {
	Scope() (rdb redis.UniversalClient, prefix string)
	Places(ctx context.Context, jobs ...throttle.JobID) (map[throttle.JobID]lanes.Place, error)
	Forget(ctx context.Context, jobs ...throttle.JobID) (known int, err error)
}

// Run gives turns until the context ends.
func Run(ctx context.Context, c Config) {
	d := &dispatcher{Config: c, limits: c.Limits.Watch(), queues: c.Queues.Watch(), process: uuid.NewString()}
	d.run(ctx)
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
	limits outage.Watch
	queues outage.Watch

	process string
	core    *turns.Core // nil while another process gives turns
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

// run gives turns until the context ends, and then the lease back, so that a
// process which stops as it should leaves no second unused.
func (d *dispatcher) run(ctx context.Context) {
	words := d.Store.Words(ctx)
	for ctx.Err() == nil {
		begun := time.Now()
		next := d.round(ctx)
		if d.core != nil {
			d.History.Round(time.Since(begun))
		}
		d.History.Leads.Store(d.core != nil)
		d.sleep(ctx, words, begun.Add(interval), next)
	}
	d.resign(ctx)
	d.History.Leads.Store(false)
}

// round does what is due, and returns when there is more to do. After an error it
// leaves Redis alone for a while: outages are logged by who asked, once each, and
// all else here.
func (d *dispatcher) round(ctx context.Context) time.Time {
	var err error
	if !time.Now().Before(d.lead) {
		err = d.takeLead(ctx)
	}
	if err == nil && d.core != nil {
		err = d.work(ctx)
	}
	if err == nil {
		return d.next()
	}
	if ctx.Err() == nil && outage.Unreachable(err) == nil {
		d.Log.Error("waiting jobs cannot be given their turns; trying again", "error", err)
	}
	d.lead = time.Now().Add(Pause)
	return d.lead
}

// work has the core's decisions carried out until nothing is due. Permits that were
// taken back may be another's at once, so expire comes before grant. That tells whom
// it calls; tell is for jobs whose permits exist by now and for those told again,
// also where no turn is due. The core can be gone after each step, when Redis says
// that another process gives turns.
func (d *dispatcher) work(ctx context.Context) error {
	for !time.Now().After(d.lead) { // whatever there is to do, the lease must be renewed
		if err := errors.Join(d.tellLate(ctx), d.expire(ctx), d.grant(ctx), d.tell(ctx)); err != nil {
			return err
		}
		if now := d.clock.now(); d.core == nil || d.core.Next(now) > now || time.Since(d.granted) < grantInterval {
			break
		}
	}
	if d.core == nil {
		return nil
	}
	if err := d.publishShares(ctx); err != nil {
		return err
	}
	return d.tend(ctx)
}

// next is when there is more to do: a turn, a job whose time is up, a put-back to move
// on, or the lease.
func (d *dispatcher) next() time.Time {
	next := d.lead
	if d.core == nil {
		return next
	}
	for _, at := range []time.Time{d.clock.local(d.core.Next(d.clock.now())), d.late, d.upkeep.due()} {
		if at.Before(next) {
			next = at
		}
	}
	return next
}

// sleep waits until next, or until a word tells of something to do before, but
// until earliest in any case: permits that appear together are given together. It
// takes all words that come meanwhile.
func (d *dispatcher) sleep(ctx context.Context, words <-chan turns.Word, earliest, next time.Time) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if next.Before(earliest) {
			next = earliest
		}
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case word, open := <-words:
			if !open { // nor will there be more, as where the limiter's client is closed
				words = nil
			} else if d.hear(word) {
				next = earliest
			}
		}
	}
}

// hear takes a word in, and reports whether there is something to do now. A process
// that does not lead hears only of new lanes and jobs: where nobody has the lease it
// takes it at once.
func (d *dispatcher) hear(word turns.Word) bool {
	now := time.Now()
	if word.Kind == turns.Reconnected {
		if d.listens { // and not for the first time: what it knows may be of a Redis that is gone
			d.core = nil
			d.upkeep.lost()
		}
		d.listens = true
	}
	switch {
	case word.Kind == turns.LaneMade || word.Kind == turns.PatienceEnds || word.Kind == turns.Reconnected || word.Kind == turns.TooMany:
		if now.Before(d.taken) || (d.core != nil && word.Number > 0 && word.Number <= d.seen) {
			return false
		}
		if d.core != nil && (word.Kind == turns.Reconnected || word.Kind == turns.TooMany) {
			d.core.ChangedAll()
		}
		d.lead = now
		return true
	case d.core == nil:
		return false
	case word.Kind == turns.QueuesWeigh:
		d.weighed, d.lead = time.Time{}, now
		return true
	case word.Kind == turns.JobCame:
		d.core.Came(d.clock.now(), word.Name)
	case word.Kind == turns.MeterChanged:
		d.core.Changed(word.Name)
	case word.Kind == turns.LimitChanged:
		d.core.ChangedLimit(word.Name)
	}
	if word.Number > d.changes+1 { // the one before got lost
		d.core.ChangedAll()
	}
	d.changes = max(d.changes, word.Number)
	return true
}
