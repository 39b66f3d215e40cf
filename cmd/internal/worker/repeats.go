package worker

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/tasks"
)

// repeatedEach is how often the log counts the jobs that ended for a cause that it named before.
const repeatedEach = time.Minute

// mostCauses is how many causes are remembered at once. Further ones are logged each time.
const mostCauses = 1000

// repeats has a cause for which jobs end logged once, and then how many more jobs ended for it.
// A config without a network that jobs call, for example, ends thousands of jobs alike. A cause
// that was quiet for a minute is a new one.
type repeats struct {
	log *slog.Logger

	mu     sync.Mutex
	timer  *time.Timer
	causes map[repeated]int // how many jobs since the log last spoke of it
}

// repeated is what happens to jobs of a type, and why.
type repeated struct{ message, typename, cause string }

// isNew reports whether a cause is one that the log does not know, and counts it otherwise.
func (r *repeats) isNew(message, typename, cause string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := repeated{message, typename, cause}
	if _, known := r.causes[of]; known {
		r.causes[of]++
		return false
	}
	if len(r.causes) >= mostCauses {
		return true
	}
	if len(r.causes) == 0 {
		r.causes = map[repeated]int{}
		r.timer = time.AfterFunc(repeatedEach, r.turn)
	}
	r.causes[of] = 0
	return true
}

// turn tells the counts, forgets causes that were quiet, and comes again while there are any.
func (r *repeats) turn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write()
	if len(r.causes) > 0 {
		r.timer.Reset(repeatedEach)
	}
}

// tell writes what was counted since, at the end of the worker.
func (r *repeats) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	r.write()
	clear(r.causes)
}

func (r *repeats) write() {
	for of, n := range r.causes {
		if r.causes[of] = 0; n == 0 {
			delete(r.causes, of)
			continue
		}
		r.log.Warn("more jobs ended for the same reason", "as", of.message, "type", of.typename, "jobs", n, "error", of.cause)
	}
}

// cause is the text of an error without what differs from job to job, as the URL does.
func cause(err error) string {
	if address, ok := errors.AsType[*tasks.AddressError](err); ok {
		return address.Error()
	}
	if network, ok := errors.AsType[*tasks.NetworkError](err); ok {
		return network.Err.Error()
	}
	return err.Error()
}
