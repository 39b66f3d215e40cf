package scheduler

import (
	"slices"
	"sync"

	"github.com/headgate/headgate/throttle"
)

// limits are those that the server keeps defined. They are told to the limiter at
// the start, or, where it cannot be reached then, before the first job that asks it.
// Afterwards it is the limiter that defines them again if its Redis has lost them.
//
// The version tells a list that was replaced while it was being told: then the new
// one must be told as well.
type limits struct {
	mu      sync.Mutex
	list    []throttle.Limit
	version int  // of the list
	known   bool // whether the limiter has been told
}

// set replaces the list. What is known need not be told to the limiter.
func (l *limits) set(list []throttle.Limit, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list, l.known = slices.Clone(list), known
	l.version++
}

// unknown returns what the limiter must be told, if anything.
func (l *limits) unknown() (list []throttle.Limit, version int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known {
		return nil, 0
	}
	return l.list, l.version
}

// told notes that the limiter knows a version of the list.
func (l *limits) told(version int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = l.known || l.version == version
}

// defined returns the limits that the limiter has been told, by name; none while it has
// not been.
func (l *limits) defined() map[string]throttle.Limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	limits := map[string]throttle.Limit{}
	for i := 0; l.known && i < len(l.list); i++ {
		limit := l.list[i]
		limit.Paused = false
		limits[limit.Name] = limit
	}
	return limits
}
