package scheduler

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/turns"
)

// takeLead takes or renews the lease, and hears what it has not heard. A process
// that cannot reach the queues does not take it: it could not call anybody.
//
// The lease outlives the next renewal by grace, and whoever does not get it comes
// again a standby after its end: nobody polls for it. A lease that ended between two
// renewals is taken anew: somebody else may have given turns meanwhile, so what the
// core knows is void. So it is where Redis knows less than it did, as after a failover.
func (g *giver) takeLead(ctx context.Context) error {
	if g.core == nil {
		if err := g.queues.note(ctx, g.db.Redis.Ping(ctx).Err()); err != nil {
			return err
		}
	}
	if g.core == nil {
		g.seen = 0
	}
	pace := g.pace()
	lead, err := g.store.Lead(ctx, g.process, pace+grace, g.seen, turns.NewEpoch())
	if g.limits.note(ctx, err) != nil {
		return err
	}
	now := time.Now()
	if !lead.Held {
		g.core = nil
		g.taken = now.Add(lead.Until)
		g.lead = now.Add(lead.Until + standby)
		return nil
	}
	g.clock = clock{lead.Now, now}
	if lead.Fresh || g.core == nil {
		err = g.takeOver(ctx, lead)
	} else {
		err = g.learn(ctx, lead, false)
	}
	g.lead = now.Add(pace)
	return err
}

// takeOver begins with what Redis keeps, whoever left it there: all lanes, and which
// of their jobs were called. Those are told again, since the one before may have
// died before it did. Where a part cannot be read it begins anew with the next
// heartbeat: half of the lanes would be worse than none.
func (g *giver) takeOver(ctx context.Context, lead turns.Lead) error {
	g.core, g.seen, g.changes, g.missed = turns.New(), 0, lead.Changes, lead.Changes
	g.weighed = time.Time{}
	err := g.learn(ctx, lead, true)
	if err == nil {
		err = g.settleAll(ctx)
	}
	if err != nil {
		g.core = nil // what it was not told it would never hear of
	}
	return err
}

// weigh tells the core how queues take turns: after a takeover, when a server says so, and
// each minute, for words get lost.
func (g *giver) weigh(ctx context.Context) error {
	if time.Since(g.weighed) < claimLife {
		return nil
	}
	weights, err := g.store.Weights(ctx)
	if g.limits.note(ctx, err) != nil {
		return err
	}
	g.core.Weigh(weights)
	g.weighed = time.Now()
	return nil
}

// pace is how long from now the lease is to be renewed. Where no turn is due for
// long that is seldom: an idle scope costs Redis next to nothing.
func (g *giver) pace() time.Duration {
	if g.core == nil {
		return heartbeat
	}
	return min(max(time.Until(g.clock.local(g.core.Next(g.clock.now()))), heartbeat), g.quiet)
}

// learn tells the core what it has not heard of; after a takeover that is all. A
// change whose word has not come by the next heartbeat is taken for lost: which
// meter it was nobody knows, so the core looks at all of them.
func (g *giver) learn(ctx context.Context, lead turns.Lead, all bool) error {
	if err := g.weigh(ctx); err != nil {
		return err
	}
	if err := g.made(ctx, lead, all); err != nil {
		return err
	}
	if g.changes < g.missed { // since a heartbeat: the word got lost
		g.core.ChangedAll()
		g.changes = g.missed
	}
	g.missed = lead.Changes
	if g.epoch != lead.Epoch {
		g.epoch = lead.Epoch
		g.upkeep.begun = time.Time{} // what was lost is to be found at once
	}
	g.patience(lead.Late)
	return nil
}

// made tells the core of new lanes, page by page; or of all lanes, of which jobs
// may be called already. Each page but the first renews the lease, for reading a
// hundred thousand lanes may take longer than it lives.
func (g *giver) made(ctx context.Context, lead turns.Lead, all bool) error {
	for {
		var lanes []string
		for _, lane := range lead.Made {
			g.seen = max(g.seen, lane.Number)
			if turns.IsLane(lane.Lane) { // else a pass forgets it
				g.core.Made(lane.Lane, lane.Number)
				g.upkeep.add(turns.Queue(lane.Lane))
				lanes = append(lanes, lane.Lane)
			}
		}
		if all {
			if err := g.find(ctx, lanes); err != nil {
				return err
			}
		}
		if len(lead.Made) < turns.LeadPage {
			return nil
		}
		var err error
		if lead, err = g.store.Lead(ctx, g.process, heartbeat+grace, g.seen, g.epoch); g.limits.note(ctx, err) != nil {
			return err
		}
	}
}

// find tells the core which jobs of lanes that it did not know are called.
func (g *giver) find(ctx context.Context, lanes []string) error {
	for lanes := range slices.Chunk(lanes, page) {
		if err := g.recallLanes(ctx, lanes, true); err != nil {
			return err
		}
	}
	return nil
}

// patience notes when the time of the next job is up, by Redis's clock; 0 is never.
func (g *giver) patience(us int64) {
	if us == 0 {
		us = math.MaxInt64
	}
	g.late = g.clock.local(us)
}

// tellLate has jobs ask whose time is up: they are told that it is too late. Redis
// takes them out of their lanes, so that those behind them have their turns, and names
// who does not come again.
func (g *giver) tellLate(ctx context.Context) error {
	for began := time.Now(); g.core != nil && !time.Now().Before(g.late); {
		late, next, err := g.store.Late(ctx, page)
		if g.limits.note(ctx, err) != nil {
			return err
		}
		g.late = time.Now().Add(next) // Redis's clock may have stepped back
		jobs := make([]job, len(late))
		for i, j := range late {
			jobs[i] = job{Queue: j.Queue, ID: j.ID}
		}
		if _, err := g.promote(ctx, jobs); err != nil {
			return err
		}
		if time.Since(began) > workFor {
			break // others have turns
		}
	}
	return nil
}

// resign lets another process take over at once. It is also what becomes of one
// that can reach the limiter but not the queues: to grant permits that nobody comes
// for would waste them.
func (g *giver) resign(ctx context.Context) {
	if g.core == nil {
		return
	}
	g.core = nil
	g.tellFound()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	g.limits.note(ctx, g.store.Resign(ctx, g.process))
}
