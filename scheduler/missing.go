package scheduler

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/waitdb"
)

// missingLimits has the limits about which warnMissing has warned, and when. It is safe for
// concurrent use.
type missingLimits struct {
	mu     sync.Mutex
	warned map[string]time.Time
}

const (
	// missingInterval is the shortest time between two warnings about a limit.
	missingInterval = time.Hour
	// missingTimeout is how long the warning waits for the names of the limits that exist.
	missingTimeout = 5 * time.Second
)

// mayWarn reports whether a warning about a limit is due.
func (m *missingLimits) mayWarn(limit string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if at, ok := m.warned[limit]; ok && now.Sub(at) < missingInterval {
		return false
	}
	if m.warned == nil {
		m.warned = map[string]time.Time{}
	}
	maps.DeleteFunc(m.warned, func(_ string, at time.Time) bool { return now.Sub(at) >= missingInterval }) // a program may make up names
	m.warned[limit] = now
	return true
}

// warnMissing warns that a job waits for a limit which does not exist, or which is for other apps.
// It does not wait for Redis.
func (s *scope) warnMissing(d waitdb.Decision) {
	if !s.missing.mayWarn(d.Limit) {
		return
	}
	why := d.NoLimitText()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), missingTimeout)
		defer cancel()
		limits, err := s.limiter.Limits(ctx)
		if err != nil {
			s.log.Warn("jobs wait until their limit is defined", "limit", d.Limit, "why", why)
			return
		}
		var names []string
		for _, l := range limits {
			names = append(names, l.Name)
		}
		_, hint := display.DidYouMean(d.Limit, names)
		s.log.Warn("jobs wait until their limit is defined", "limit", d.Limit, "why", why, "hint", hint, "limits", names)
	}()
}
