package throttle

import "context"

// Extend implements Limiter. It extends what is still held even where it reports
// false: the holder is to stop, and frees the rest in its own time.
func (l *Local) Extend(_ context.Context, holder string, needs ...Need) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.begin()
	held := true
	for _, need := range needs {
		r := l.limits[need.Limit]
		if r == nil || r.Kind != Concurrency {
			continue
		}
		c, found := l.claim(now, r, need).meter.(*concurrency)
		held = found && c.extend(now, holder) && held
	}
	return held, nil
}

// Free implements Limiter. It asks for no limit of that name and kind, so a lease is
// given back also where the limit has been changed or deleted since.
func (l *Local) Free(_ context.Context, holder string, needs ...Need) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin()
	for _, need := range needs {
		if c, ok := l.meters[meterID{Concurrency, meterKey{need.Limit, need.Key}}].(*concurrency); ok {
			c.free(holder)
		}
	}
	return nil
}
