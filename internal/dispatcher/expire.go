package dispatcher

import "context"

// expire takes back what is reserved for jobs that have not come in time.
func (d *dispatcher) expire(ctx context.Context) error {
	for range batches {
		if d.core == nil {
			return nil
		}
		lanes := d.core.ToExpire(d.clock.now(), PageSize)
		if len(lanes) == 0 {
			return nil
		}
		if err := d.expireLanes(ctx, lanes, false); err != nil {
			return err
		}
	}
	return nil
}

// expireLanes does that for some lanes. After a takeover the core must learn of
// all called jobs, since whoever called them may not have told them.
func (d *dispatcher) expireLanes(ctx context.Context, lanes []string, takeover bool) error {
	expired, err := d.Waits.ExpireGrants(ctx, lanes)
	if d.limits.Note(ctx, err) != nil {
		return err
	}
	for i, r := range expired {
		if takeover {
			r.Overdue = append(r.Overdue, r.Reserved...)
		}
		d.core.Expired(d.clock.now(), lanes[i], r.Granted, r.Overdue, r.Waiting > 0)
	}
	return nil
}
