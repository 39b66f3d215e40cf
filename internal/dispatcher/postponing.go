package dispatcher

import (
	"context"
	"time"

	"github.com/headgate/headgate/throttle"
)

// A postponing moves on the put-backs of waiting jobs that end before a moment, so
// that none comes early: a page of each queue in turn. It has an end: those denied
// meanwhile are put back for five seconds at least, and so at last until later.
type postponing struct {
	rest   []remainder // the next first
	before time.Time
}

// A remainder is the put-backs of a queue from an offset on.
type remainder struct {
	queue  string
	offset int
}

// begin plans to go through some queues.
func (p *postponing) begin(queues []string, before time.Time) {
	p.before = before
	for _, queue := range queues {
		p.rest = append(p.rest, remainder{queue, 0})
	}
}

// underway reports whether anything is left to look at.
func (p *postponing) underway() bool { return len(p.rest) > 0 }

// postpone moves a page on. Each job gets what it would be told now, and that moment
// at least. Called jobs are left alone: they come, or their put-back is what brings
// them if the promotion got lost. It costs up to four round trips.
func (d *dispatcher) postpone(ctx context.Context, p *postponing) error {
	queue, offset := p.rest[0].queue, p.rest[0].offset
	ids, next, err := d.DB.Denied(ctx, queue, p.before, offset)
	if d.queues.Note(ctx, err) != nil {
		return err
	}
	places, err := d.Waits.Positions(ctx, jobIDs(queue, ids)...)
	if d.limits.Note(ctx, err) != nil {
		return err
	}
	later := map[string]time.Time{}
	for job, place := range places {
		if !place.Granted {
			at := time.Now().Add(place.PutBack())
			if at.Before(p.before) {
				at = p.before
			}
			later[job.ID] = at
		}
	}
	if err := d.queues.Note(ctx, d.DB.Postpone(ctx, queue, later)); err != nil {
		return err
	}
	p.rest = p.rest[1:]
	if next >= 0 {
		p.rest = append(p.rest, remainder{queue, next - len(later)}) // those are due no more
	}
	return nil
}

// jobIDs are IDs of one queue as the limiter names jobs.
func jobIDs(queue string, ids []string) []throttle.JobID {
	jobs := make([]throttle.JobID, len(ids))
	for i, id := range ids {
		jobs[i] = throttle.JobID{Queue: queue, ID: id}
	}
	return jobs
}
