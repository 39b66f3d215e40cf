package fairqueue

// pace is how many turns a meter gets in one batch. A batch is chosen as if all
// of it were granted, and a meter does not say how much more it can give. So it
// first gets as many as it gave the last time it was ready, and then, while it
// still is, one, two, four and so on.
type pace struct {
	left, step int
	// gave is how many turns were granted since it got ready.
	gave, refused int
	tried         bool
	// exact is until when nobody is called ahead, and near until when jobs are called no
	// further ahead than within: one has had a turn of which the meter gives few at once.
	exact, near, within int64
	// early is whether the last job that it gave a turn could have its permits early.
	early bool
}

func newPace() pace { return pace{left: 1, step: 1} }

const mostTurns = 256

// adjust prepares the next batch.
func (p *pace) adjust(ready bool) {
	if ready && p.refused == 0 {
		p.left, p.step = p.step, min(2*p.step, mostTurns)
	} else {
		p.left, p.step, p.gave = max(1, min(p.gave, mostTurns)), 1, 0
	}
	p.tried, p.refused = false, 0
}
