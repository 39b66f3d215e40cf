package worker

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/headgate/headgate/tasks"
)

const (
	repeatInterval = time.Minute // between the logged counts
	maxCauses      = 1000        // how many are remembered; others are logged each time
)

// repeats logs the cause of failed jobs once, and then each minute how many more jobs failed for it.
// For example, jobs that call a network which the config does not allow all fail alike. A cause
// without a job for a minute is forgotten.
type repeats struct {
	log *slog.Logger

	mu     sync.Mutex
	timer  *time.Timer
	causes map[repeated]int // jobs since the last log line
}

type repeated struct{ message, typename, cause string }

// isNew reports whether a cause must be logged. Otherwise it is counted.
func (r *repeats) isNew(message, typename, cause string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := repeated{message, typename, cause}
	if _, known := r.causes[of]; known {
		r.causes[of]++
		return false
	}
	if len(r.causes) >= maxCauses {
		return true
	}
	if len(r.causes) == 0 {
		r.causes = map[repeated]int{}
		r.timer = time.AfterFunc(repeatInterval, r.tick)
	}
	r.causes[of] = 0
	return true
}

// tick logs the counts.
func (r *repeats) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write()
	if len(r.causes) > 0 {
		r.timer.Reset(repeatInterval)
	}
}

// flush logs the counts when the worker stops.
func (r *repeats) flush() {
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

// cause is the text of an error without the parts that differ between jobs, such as the URL.
func cause(err error) string {
	if address, ok := errors.AsType[*tasks.AddressError](err); ok {
		return address.Error()
	}
	if network, ok := errors.AsType[*tasks.NetworkError](err); ok {
		return network.Err.Error()
	}
	return err.Error()
}
