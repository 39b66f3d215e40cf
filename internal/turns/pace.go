package turns

// pace is how many turns a meter gets in one batch. A batch is chosen as if all
// of it were granted, and a meter does not say how much more it can give; so it
// gets twice as many each time it gave all and was still ready, and after a
// refusal as many as it gave.
type pace struct {
	most, left              int
	tried, granted, refused int
	// exact says that the meter gives nothing ahead of its time.
	exact bool
}

func newPace() pace { return pace{most: 1, left: 1} }

const mostTurns = 256

// adjust prepares the next batch.
func (p *pace) adjust(ready bool) {
	switch {
	case p.refused > 0:
		p.most = max(1, p.granted)
	case p.left == 0 && ready:
		p.most = min(2*p.most, mostTurns)
	}
	p.left, p.tried, p.granted, p.refused = p.most, 0, 0, 0
}
