package dispatcher

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/waitdb"
)

// Run gives turns until the context ends.
func Run(ctx context.Context, c Config) {
	d := &dispatcher{Config: c, limits: c.Limits.Watch(), queues: c.Queues.Watch(), process: uuid.NewString()}
	d.run(ctx)
}

// run gives turns until the context ends, and then the lease back, so that a
// process which stops as it should leaves no second unused.
func (d *dispatcher) run(ctx context.Context) {
	words := d.Waits.Notifications(ctx)
	for ctx.Err() == nil {
		begun := time.Now()
		next := d.round(ctx)
		if d.core != nil {
			d.History.ObserveRound(time.Since(begun))
		}
		d.History.IsDispatcher.Store(d.core != nil)
		d.sleep(ctx, words, begun.Add(interval), next)
	}
	d.resign(ctx)
	d.History.IsDispatcher.Store(false)
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
	if ctx.Err() == nil && redishealth.Unreachable(err) == nil {
		d.Log.Error("waiting jobs cannot be given their turns; trying again", "error", err)
	}
	d.lead = time.Now().Add(ErrorPause)
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
	if err := errors.Join(d.askSlots(ctx), d.publishShares(ctx)); err != nil {
		return err
	}
	return d.tend(ctx)
}

// askSlotsEach is how often servers of queues whose workers are busy are asked for free slots.
const askSlotsEach = time.Second

// askSlots asks the servers of queues whose granted jobs come late.
func (d *dispatcher) askSlots(ctx context.Context) error {
	queues := d.core.SlotsWanted(d.clock.now())
	if len(queues) == 0 || time.Since(d.asked) < askSlotsEach {
		return nil
	}
	d.asked = time.Now()
	return d.limits.Note(ctx, d.Waits.RequestSlots(ctx, queues))
}

// next is when there is more to do: a turn, a job whose time is up, a put-back to move
// on, or the lease.
func (d *dispatcher) next() time.Time {
	next := d.lead
	if d.core == nil {
		return next
	}
	if at := d.asked.Add(askSlotsEach); len(d.core.SlotsWanted(d.clock.now())) > 0 && at.Before(next) {
		next = at
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
func (d *dispatcher) sleep(ctx context.Context, words <-chan waitdb.Notification, earliest, next time.Time) {
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
// that does not lead hears of new lanes and jobs, and takes the lease at once if no process
// has it; and it hears that the leader has stepped down. The leader's own word does not count:
// a process that stepped down because it cannot reach the queues leaves the lease to others.
func (d *dispatcher) hear(word waitdb.Notification) bool {
	now := time.Now()
	if word.Kind == waitdb.Reconnected {
		if d.listens { // and not for the first time: what it knows may be of a Redis that is gone
			d.core = nil
			d.upkeep.lost()
		}
		d.listens = true
	}
	switch {
	case word.Kind == waitdb.SteppedDown && word.Name != d.process:
		d.taken, d.lead = time.Time{}, now
		return true
	case word.Kind == waitdb.LaneAdded || word.Kind == waitdb.DeadlineAdded || word.Kind == waitdb.Reconnected || word.Kind == waitdb.TooMany:
		if now.Before(d.taken) || (d.core != nil && word.Number > 0 && word.Number <= d.seen) {
			return false
		}
		if d.core != nil && (word.Kind == waitdb.Reconnected || word.Kind == waitdb.TooMany) {
			d.core.ChangedAll()
		}
		d.lead = now
		return true
	case word.Kind == waitdb.SlotsRequested:
		if d.SlotsRequested != nil {
			d.SlotsRequested(strings.Split(word.Name, "\n"))
		}
		return false
	case d.core == nil:
		return false
	case word.Kind == waitdb.SlotsReported:
		server, every, queues := word.Slots()
		d.core.SetSlots(d.clock.now(), server, int(word.Number), every, queues)
		return true
	case word.Kind == waitdb.WeightsChanged:
		d.weighed, d.lead = time.Time{}, now
		return true
	case word.Kind == waitdb.JobArrived:
		d.core.Arrived(d.clock.now(), word.Name)
	case word.Kind == waitdb.MeterChanged:
		d.core.Changed(word.Name)
	case word.Kind == waitdb.LimitChanged:
		d.core.ChangedLimit(word.Name)
	}
	if word.Number > d.changes+1 { // the one before got lost
		d.core.ChangedAll()
	}
	d.changes = max(d.changes, word.Number)
	return true
}
