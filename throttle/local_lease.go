package throttle

import "context"

// Extend implements Limiter.
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

// Free implements Limiter.
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
