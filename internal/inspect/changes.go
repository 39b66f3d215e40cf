package inspect

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Changes returns up to n entries of the changelog of each scope, the newest first. The changes of the
// parts of a divided limit become one change.
func (q *Queues) Changes(ctx context.Context, n int) (changes []throttle.Change, err error) {
	read, err := readAll(ctx, q.Scopes(), func(ctx context.Context, in *Queues) ([]throttle.Change, error) { return in.Limiter.Changes(ctx, n) })
	all := slices.Concat(read...)
	slices.SortStableFunc(all, func(a, b throttle.Change) int { return b.At.Compare(a.At) })
	var parts [][]throttle.Change // of each change
	for _, c := range all {
		home, _ := q.Sharded.Home(c.Limit)
		last := max(0, len(changes)-home.Count)
		i := slices.IndexFunc(changes[last:], func(other throttle.Change) bool {
			return c.What == other.What && c.Limit == other.Limit && c.Key == other.Key && c.By == other.By && other.At.Sub(c.At) < time.Second
		})
		if i < 0 || home.Count == 0 {
			changes, parts = append(changes, c), append(parts, nil)
			i = len(changes) - 1 - last
		}
		parts[last+i] = append(parts[last+i], c)
	}
	for i := range changes {
		changes[i].From = q.joinTexts(parts[i], func(c throttle.Change) string { return c.From })
		changes[i].To = q.joinTexts(parts[i], func(c throttle.Change) string { return c.To })
	}
	return changes, err
}

// joinTexts returns the definition that the parts of a change have together before or after it, or ""
// if that is not known.
func (q *Queues) joinTexts(parts []throttle.Change, text func(throttle.Change) string) string {
	home, divided := q.Sharded.Home(parts[0].Limit)
	if !divided {
		return text(parts[0])
	}
	var limits []throttle.Limit
	for _, c := range parts {
		if l, ok := q.Limiter.Internals().ParseText(c.Limit, text(c)); ok {
			limits = append(limits, l)
		}
	}
	if len(limits) != home.Count {
		return ""
	}
	return q.Sharded.Join(parts[0].Limit, limits).String()
}
