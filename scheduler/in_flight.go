package scheduler

import (
	"sync"
	"time"
)

// inFlight holds a server's attempts from when asynq gets the job until asynq has written to Redis
// how the attempt ended. It is safe for concurrent use.
type inFlight struct {
	mu       sync.Mutex
	attempts map[job]*attempt
	slots    int       // worker slots that attempts occupy
	sweep    time.Time // when old attempts are removed next
}

// writeBackTime is the minimum time for which an attempt without a slot is kept: asynq tries to
// write its end until the lease ends, after 30 s.
const writeBackTime = time.Minute

// add adds the attempt of a job that asynq gets.
func (f *inFlight) add(a *attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.attempts == nil {
		f.attempts = map[job]*attempt{}
	}
	if now.After(f.sweep) {
		f.sweep = now.Add(writeBackTime)
		for j, a := range f.attempts {
			if !a.slot && now.After(a.until) {
				delete(f.attempts, j)
			}
		}
	}
	f.free(f.attempts[a.job])
	a.slot = true
	f.slots++
	f.attempts[a.job] = a
}

// free frees the slot of an attempt, if it has one. The lock is held.
func (f *inFlight) free(a *attempt) {
	if a != nil && a.slot {
		a.slot, a.until = false, time.Now().Add(writeBackTime)
		f.slots--
	}
}

// get returns the attempt of a job, or an empty attempt if there is none.
func (f *inFlight) get(j job) *attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.attempts[j]; a != nil {
		return a
	}
	return &attempt{job: j}
}

// take claims the attempt of a job whose handler has not started. It returns nil if there is none,
// or if it was claimed before.
func (f *inFlight) take(j job) *attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.attempts[j]
	if a == nil || a.taken {
		return nil
	}
	a.taken = true
	return a
}

// release frees the slot of an attempt. It removes the attempt if its end is written, unless a
// later attempt of the job has replaced it.
func (f *inFlight) release(a *attempt, written bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free(a)
	if written && f.attempts[a.job] == a {
		delete(f.attempts, a.job)
	}
}

// busy returns how many slots attempts occupy.
func (f *inFlight) busy() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slots
}

// putsBack reports whether a job with that ID is being put back, in any queue. It looks at all
// attempts, and is only called when asynq is about to archive a job.
func (f *inFlight) putsBack(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for j, a := range f.attempts {
		if j.ID == id && a.ending().putBack != nil {
			return true
		}
	}
	return false
}
