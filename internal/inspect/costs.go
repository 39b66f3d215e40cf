package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/words"
	"github.com/headgate/headgate/throttle"
)

// Costs says which jobs wait that a limit refuses for good once it is as next says; it
// is empty where there are none. Who waits does not say for which app, so those are
// counted all, and so are those of keys with a capacity of their own. What Set refuses
// spoils nothing, nor does a limit that gives as much at once as before.
func (q *Queues) Costs(ctx context.Context, was, next throttle.Limit) (says string, err error) {
	if next.Validate() != nil {
		return "", nil
	}
	if was.Kind == "" || next.MaxCost() < was.MaxCost() {
		n, err := q.Limiter.Waiters(ctx, next.Name, next.MaxCost()+1)
		if err != nil {
			return "", err
		}
		if n > 0 {
			return tooCostly(next.Name, n, next.MaxCost()), nil
		}
	}
	if !excludes(was.Apps, next.Apps) {
		return "", nil
	}
	n, err := q.Limiter.Waiters(ctx, next.Name, 0)
	if err != nil || n == 0 {
		return "", err
	}
	return fmt.Sprintf("limit %s has %s waiting, of which those of other apps than %s are then archived, or what on_no_limit says",
		next.Name, words.Count(n, "job"), strings.Join(next.Apps, ",")), nil
}

// KeyCosts is Costs for what one key of a limit is to count by.
func (q *Queues) KeyCosts(ctx context.Context, limit, key string, o throttle.Override) (says string, err error) {
	l, now, err := q.Limiter.Key(ctx, limit, key)
	if errors.Is(err, throttle.ErrNoLimit) {
		return "", nil // which SetKey says
	}
	most := l.With(o).MaxCost()
	if err != nil || most >= l.With(now.Override).MaxCost() {
		return "", err
	}
	n, err := q.Limiter.KeyWaiters(ctx, limit, key, most+1)
	if err != nil || n == 0 {
		return "", err
	}
	return tooCostly(limit+" of "+key, n, most), nil
}

func tooCostly(limit string, jobs, most int) string {
	return fmt.Sprintf("limit %s has %s waiting for more permits at once than %d, which are then archived", limit, words.Count(jobs, "job"), most)
}

// excludes reports whether there are apps that a limit is for and then no more. No
// list means all apps.
func excludes(was, next []string) bool {
	return len(next) > 0 && (len(was) == 0 || slices.ContainsFunc(was, func(app string) bool { return !slices.Contains(next, app) }))
}
