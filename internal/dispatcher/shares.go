package dispatcher

import "context"

// publishShares writes where lanes take turns, and where newcomers may take again. Only
// meters whose state has changed since are written.
func (d *dispatcher) publishShares(ctx context.Context) error {
	if d.core == nil {
		return nil
	}
	return d.write(ctx, d.core.Sharing())
}

// write does that for some meters. One at which a lane waits that this process has not
// heard of keeps its mark: seen says which it has. Where nobody has waited before, permits
// may have come back unheard since the meter was asked.
func (d *dispatcher) write(ctx context.Context, sharing map[string]int) error {
	if len(sharing) == 0 {
		return nil
	}
	marked, err := d.Waits.PublishShares(ctx, d.process, d.seen, sharing)
	for _, meter := range marked {
		d.core.Changed(meter)
	}
	return d.limits.Note(ctx, err)
}

// publishAllShares does that for all meters after a takeover, and takes back the marks
// of meters at which nobody waits any more.
func (d *dispatcher) publishAllShares(ctx context.Context) error {
	marks, err := d.Waits.Contended(ctx)
	if d.limits.Note(ctx, err) != nil {
		return err
	}
	sharing := d.core.Sharing()
	for _, meter := range marks {
		sharing[meter] += 0
	}
	return d.write(ctx, sharing)
}
