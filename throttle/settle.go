package throttle

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/lua"
)

// taken is what the scripts say of each need: its mark, in two numbers.
func taken(marks []int64, needs []Need) []Taken {
	var all []Taken
	for i, need := range needs {
		if need.Cost > 0 {
			all = append(all, Taken{need, mark(marks[2*i:])})
		}
	}
	return all
}

// spent finds what a decision took of a meter, in the slice that all copies of the
// decision share. It fails where that is nothing, so that nobody settles what was never
// allowed.
func (d Decision) spent(limit, key string) (*Taken, error) {
	for i, t := range d.Taken {
		if t.Limit == limit && t.Key == key {
			return &d.Taken[i], nil
		}
	}
	return nil, fmt.Errorf("settle: nothing was taken of limit %s for key %q", limit, key)
}

// charged notes what a call counts as now. What was charged for longer of a funnel is its
// own, and not what others took since.
func (t *Taken) charged(cost int, longer int64) {
	if t.Cost = cost; t.Mark[0] > 0 {
		t.Mark[0] += longer
	}
}

// validCost refuses a true cost that is out of bounds. 0 is within: such a call is
// given back whole.
func validCost(limit string, cost int) error {
	if cost < 0 || cost > maxPermits {
		return fieldError("cost", cost, "want 0 to %d of limit %s", maxPermits, limit)
	}
	return nil
}

// memory is for how long it is known that a key's rate has changed; nothing comes
// back that was taken longer ago. Without that, what was taken at one rate could be
// given back at another, as more permits than it was.
const memory = int64(time.Hour / time.Microsecond)

// Settle implements Limiter. It fails with an error that wraps ErrNoLimit where the
// limit is gone, a [*FieldError] for a cost out of bounds, and where the decision took
// nothing of that meter. After one that wraps ErrUnavailable nobody knows whether the
// difference was charged: said again, it can be charged twice, and is never given back
// twice. A call that go-redis repeats, because its answer got lost, charges once.
func (r *Redis) Settle(ctx context.Context, d Decision, limit, key string, cost int) error {
	t, err := d.spent(limit, key)
	if err = cmp.Or(err, validCost(limit, cost)); err != nil {
		return err
	}
	c := r.callers.Next()
	defer r.callers.Done(c)
	was := t.Cost
	t.Cost = min(was, cost) // whatever becomes of the call
	for range 3 {
		reply, err := r.run(ctx, lua.Charge, limit, key, d.At.UnixMicro(), was, cost, t.Mark[0], t.Mark[1], d.Holder, c.Name, c.Calls).Int64Slice()
		switch {
		case err != nil:
			return unavailable(err)
		case reply[0] == -1:
			return fmt.Errorf("%w: %s", ErrNoLimit, limit)
		case reply[0] == 0:
			t.charged(cost, reply[1])
			return nil
		}
		if err := r.ExtendCalendars(ctx, []string{limit}, reply[0]); err != nil {
			return err
		}
	}
	return errCalendar
}

// Settle implements Limiter.
func (l *Local) Settle(_ context.Context, d Decision, limit, key string, cost int) error {
	t, err := d.spent(limit, key)
	if err = cmp.Or(err, validCost(limit, cost)); err != nil {
		return err
	}
	return l.change(limit, func(r *activeLimit, now int64) {
		c := l.claim(now, r, t.Need)
		at, more := d.At.UnixMicro(), int64(cost-t.Cost)
		held, leased := c.meter.(*concurrency)
		longer := int64(0)
		switch {
		case leased:
			held.resize(now, d.Holder, int64(cost))
		case more > 0:
			c.meter.charge(now, more)
			l.meters[c.id] = c.meter
			if g, ok := c.meter.(*gcra); ok {
				longer, _ = span(more, g.n, g.period)
			}
		case more < 0 && t.Mark[0] > 0 && c.own.since <= at && at <= now && now-at < memory:
			c.meter.giveBack(now, -more, spent{at, int64(t.Cost), t.Mark})
		}
		t.charged(cost, longer)
	})
}
