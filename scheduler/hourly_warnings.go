package scheduler

import (
	"maps"
	"sync"
	"time"
)

// hourlyWarnings bounds the warnings about names that a program chooses: of limits, or of task types.
// It is safe for concurrent use. The zero value is ready.
type hourlyWarnings struct {
	mu     sync.Mutex
	warned map[string]time.Time // when the server last warned about a name
}

const (
	// warnInterval is the shortest time between two warnings about one name.
	warnInterval = time.Hour
	// maxWarned is the largest number of names about which the server warns in a warnInterval, because
	// jobs can have any number of wrong names.
	maxWarned = 100
)

// mayWarn reports whether a warning about a name is due, and counts it as given.
func (h *hourlyWarnings) mayWarn(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if at, ok := h.warned[name]; ok && now.Sub(at) < warnInterval {
		return false
	}
	maps.DeleteFunc(h.warned, func(_ string, at time.Time) bool { return now.Sub(at) >= warnInterval })
	if len(h.warned) >= maxWarned {
		return false
	}
	if h.warned == nil {
		h.warned = map[string]time.Time{}
	}
	h.warned[name] = now
	return true
}
