package throttle

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/lua"
)

// taken is what the scripts say of each need: until when a funnel owes, or 0.
func taken(owed []int64, needs []Need) []Taken {
	var all []Taken
	for i, us := range owed {
		if needs[i].Cost == 0 {
			continue
		}
		t := Taken{Need: needs[i]}
		if us > 0 {
			t.OwedUntil = time.UnixMicro(us)
		}
		all = append(all, t)
	}
	return all
}

// newTaken is what was just taken of a meter in process.
func newTaken(need Need, m meter) Taken {
	t := Taken{Need: need}
	if g, ok := m.(*gcra); ok {
		t.OwedUntil = time.UnixMicro(min(g.tat, far))
	}
	return t
}

// spent finds what a decision took of a meter. It fails where that is nothing, so
// that nobody settles what was never allowed.
func (d Decision) spent(limit, key string) (Taken, error) {
	for _, t := range d.Taken {
		if t.Limit == limit && t.Key == key {
			return t, nil
		}
	}
	return Taken{}, fmt.Errorf("settle: nothing was taken of limit %s for key %q", limit, key)
}

// owedUS is OwedUntil in microseconds as the scripts take it, 0 where not known.
func (t Taken) owedUS() int64 {
	if t.OwedUntil.IsZero() {
		return 0
	}
	return t.OwedUntil.UnixMicro()
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
// difference was charged; a call that go-redis repeats, because its answer got lost,
// charges once.
func (r *Redis) Settle(ctx context.Context, d Decision, limit, key string, cost int) error {
	t, err := d.spent(limit, key)
	if err = cmp.Or(err, validCost(limit, cost)); err != nil {
		return err
	}
	c := r.callers.Get().(*caller)
	defer r.callers.Put(c)
	c.calls++
	for range 3 {
		reply, err := r.run(ctx, lua.Charge, limit, key, d.At.UnixMicro(), t.Cost, cost, t.owedUS(), d.Holder, c.name, c.calls).Int64()
		switch {
		case err != nil:
			return unavailable(err)
		case reply == -1:
			return fmt.Errorf("%w: %s", ErrNoLimit, limit)
		case reply == 0:
			return nil
		}
		if err := r.extendCalendars(ctx, []string{limit}, reply); err != nil {
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
		switch {
		case leased:
			held.resize(now, d.Holder, int64(cost))
		case more > 0:
			c.meter.charge(now, more)
			l.meters[c.id] = c.meter
		case more < 0 && c.own.since <= at && at <= now && now-at < memory:
			c.meter.giveBack(now, -more, spent{at, int64(t.Cost), t.owedUS()})
		}
	})
}
