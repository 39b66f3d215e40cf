package scheduler

import (
	"sync"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// job names a job in asynq: an ID is unique in its queue only.
type job = throttle.JobID

// An attempt in flight is a job that asynq has been given, until asynq has written to Redis how
// the attempt ended.
type flight struct {
	lease  asynqdb.LeaseID // under which this server has the job
	msg    string          // as asynq stores it
	asking *acquireRequest // until the handler takes it
	since  time.Time       // when the job came to its lane first; zero until its handler runs
	// noted is whether people want to know of an attempt that has ended: it has failed, or one
	// before it had. Its handler took so long.
	noted bool
	took  time.Duration
	// putBack is what is to become of a job that has not failed. asynq archives a job on its last
	// attempt whatever kind of error it gets, so the client between asynq and Redis looks here.
	putBack *putBackError

	slot  bool      // whether the attempt has a slot of the server
	until time.Time // when an attempt without a slot is forgotten
}

// inFlight is all attempts of a server in flight. It is safe for concurrent use.
type inFlight struct {
	mu       sync.Mutex
	attempts map[job]*flight
	slots    int       // that attempts have
	sweep    time.Time // when attempts are forgotten next
}

// writeBackTime is how long an attempt without a slot is remembered at least. asynq stops trying
// to write it when its lease ends, after 30 s.
const writeBackTime = time.Minute

// add notes that asynq gets a job.
func (f *inFlight) add(j job, a flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.attempts == nil {
		f.attempts = map[job]*flight{}
	}
	if now.After(f.sweep) {
		f.sweep = now.Add(writeBackTime)
		for j, a := range f.attempts {
			if !a.slot && now.After(a.until) {
				delete(f.attempts, j)
			}
		}
	}
	f.free(f.attempts[j])
	a.slot = true
	f.slots++
	f.attempts[j] = &a
}

// free frees the slot of an attempt, if it has one. The lock is held.
func (f *inFlight) free(a *flight) {
	if a != nil && a.slot {
		a.slot, a.until = false, time.Now().Add(writeBackTime)
		f.slots--
	}
}

// get returns what is known of a job: the zero flight if this server does not have the job.
func (f *inFlight) get(j job) flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.attempts[j]; a != nil {
		return *a
	}
	return flight{}
}

// take returns the question of a job that has not begun, once; nil if there is none.
func (f *inFlight) take(j job) (q *acquireRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.attempts[j]; a != nil {
		q, a.asking = a.asking, nil
	}
	return q
}

// note changes what is known of an attempt, unless a later attempt of the job has replaced it.
func (f *inFlight) note(j job, lease asynqdb.LeaseID, change func(*flight)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.attempts[j]; a != nil && a.lease == lease {
		change(a)
	}
}

// freeSlot frees the slot of an attempt, which asynq may not have written yet.
func (f *inFlight) freeSlot(j job, lease asynqdb.LeaseID) { f.note(j, lease, f.free) }

// written forgets an attempt.
func (f *inFlight) written(j job, lease asynqdb.LeaseID) {
	f.note(j, lease, func(a *flight) {
		f.free(a)
		delete(f.attempts, j)
	})
}

// busy is how many slots attempts have.
func (f *inFlight) busy() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slots
}

// putsBack reports whether a job of that ID is to be put back, in any queue. It looks at all
// attempts, and is only asked when asynq is about to archive a job.
func (f *inFlight) putsBack(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for j, a := range f.attempts {
		if j.ID == id && a.putBack != nil {
			return true
		}
	}
	return false
}
