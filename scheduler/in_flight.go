package scheduler

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

// inFlight is a server's registry of the attempts that asynq has. An attempt enters it when asynq
// gets the job, and leaves it when asynq is done with the attempt, however long that takes. The
// registry also has the put-backs whose replies did not arrive. It is safe for concurrent use.
//
// asynq has at most one attempt with a job ID at a time, because it tells its own workers apart by
// the job's ID alone, in any queue. When the older of two such workers ended, asynq would no longer
// extend the lease of the newer one.
type inFlight struct {
	mu         sync.Mutex
	attempts   map[string]*attempt           // by job ID
	last       int64                         // number of the last attempt
	occupied   int                           // number of occupied worker slots
	handlers   int                           // number of handlers that have not returned
	putBacks   map[*attempt]*asynqdb.PutBack // put-backs that Redis may not have written
	heartbeats atomic.Int64                  // begins and ends of calls of asynq's heartbeat: odd while one waits for Redis
}

const (
	// lastNumber is the last number of an attempt. After it the numbers begin again.
	lastNumber = 1_000_000
	// goodbyeTime is the time in which an asynq worker whose context has ended tells asynq's
	// heartbeat so. While a heartbeat calls Redis, several times in a row, the worker waits for the
	// heartbeat.
	goodbyeTime = time.Millisecond
)

// add adds an attempt that asynq gets, and gives it a number. isBusy must be false for its job ID.
func (f *inFlight) add(a *attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attempts == nil {
		f.attempts = map[string]*attempt{}
	}
	f.last = f.last%lastNumber + 1
	a.number = f.last
	a.hasSlot = true
	f.occupied++
	f.attempts[a.ID] = a
}

// isBusy reports whether asynq has an attempt with that job ID, and whether the attempt has ended,
// so that asynq will be done with it in a moment. An attempt whose handler was not called before the
// end of its lease leaves the registry here, because its handler will not run.
func (f *inFlight) isBusy(id string) (busy, ending bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.attempts[id]
	if a == nil {
		return false, false
	}
	if !a.isTaken && time.Now().After(a.leaseEnd) {
		f.remove(a)
		return false, false
	}
	return true, a.isEnding || a.isLeft
}

// get returns the attempt of a job that asynq has, or nil.
func (f *inFlight) get(j job) *attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.attempts[j.ID]; a != nil && a.Queue == j.Queue {
		return a
	}
	return nil
}

// getNumber returns the attempt with that number and job ID, or nil.
func (f *inFlight) getNumber(number int64, id string) *attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.attempts[id]; a != nil && a.number == number {
		return a
	}
	return nil
}

// run marks an attempt as taken, because asynq calls its handler. It returns false if asynq has
// ended the attempt.
func (f *inFlight) run(a *attempt, parent *runContext) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.isTaken {
		return false
	}
	a.isTaken, a.asynq = true, parent
	f.handlers++
	return true
}

// end is called when asynq is about to write the attempt's end. It reports whether the handler was
// never called. From now on it will not be called.
func (f *inFlight) end(a *attempt) (neverRan bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	neverRan = !a.isTaken
	a.isTaken, a.isEnding = true, true
	return neverRan
}

// cancelLost cancels an attempt that has lost its lease. It does nothing if the attempt is nil or ends.
func (s *Server) cancelLost(a *attempt) {
	if a != nil && s.inFlight.cancel(a) {
		s.log.Warn("a job that runs here was taken back, and runs again: its handler is canceled", "job", a.ID, "queue", a.Queue)
	}
}

// cancel ends asynq's context of an attempt. It reports whether the attempt still ran.
func (f *inFlight) cancel(a *attempt) (runs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.asynq == nil || a.isEnding || a.isLeft {
		return false
	}
	a.asynq.end(nil)
	return true
}

// written is called after asynq's call that writes the attempt's end, and frees the attempt's slot. It
// reports whether asynq is done with the attempt, although asynq's context will not end after this call:
// the handler was never called, or the context has ended before.
func (f *inFlight) written(a *attempt) (isDone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release(a)
	return a.asynq == nil || a.asynq.Err() != nil
}

// isWritten reports whether written was called.
func (f *inFlight) isWritten(a *attempt) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return a.isEnding && !a.hasSlot
}

// release frees the slot of an attempt. The caller holds mu.
func (f *inFlight) release(a *attempt) {
	if a.hasSlot {
		a.hasSlot = false
		f.occupied--
	}
}

// leave is called when asynq is done with an attempt. The attempt's worker still has to tell asynq's
// heartbeat, so the attempt leaves the registry a moment later.
func (f *inFlight) leave(a *attempt) {
	f.mu.Lock()
	a.isLeft = true
	f.release(a)
	f.mu.Unlock()
	before := f.heartbeats.Load()
	time.AfterFunc(goodbyeTime, func() {
		if now := f.heartbeats.Load(); now != before || now%2 == 1 {
			f.leave(a)
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.remove(a)
	})
}

// remove removes an attempt. The caller holds mu.
func (f *inFlight) remove(a *attempt) {
	f.release(a)
	if f.attempts[a.ID] == a {
		delete(f.attempts, a.ID)
	}
}

// returned notes that the handler of an attempt has returned.
func (f *inFlight) returned(a *attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a.isReturned = true
	f.handlers--
}

// allReturned reports whether all handlers that were called have returned.
func (f *inFlight) allReturned() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.handlers == 0
}

// isUnwritten reports whether the handler of an attempt has returned and asynq is done with the
// attempt, but has not written its end. asynq writes no end after the end of the attempt's lease.
func (f *inFlight) isUnwritten(a *attempt) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return a.isReturned && a.isLeft && !a.isEnding
}

// keepPutBack keeps a put-back that Redis may not have written.
func (f *inFlight) keepPutBack(a *attempt, back *asynqdb.PutBack) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.putBacks == nil {
		f.putBacks = map[*attempt]*asynqdb.PutBack{}
	}
	f.putBacks[a] = back
}

// dropPutBack forgets a put-back that Redis has written, or that came too late.
func (f *inFlight) dropPutBack(a *attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.putBacks, a)
}

// keptPutBacks returns the put-backs that Redis may not have written.
func (f *inFlight) keptPutBacks() map[*attempt]*asynqdb.PutBack {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.putBacks)
}

// occupiedSlots returns the number of occupied worker slots.
func (f *inFlight) occupiedSlots() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.occupied
}

// freeSlots returns the number of free worker slots.
func (s *Server) freeSlots() int { return max(0, s.prefetcher.slots-s.inFlight.occupiedSlots()) }

// putsBack reports whether the attempt with that job ID is being put back.
func (f *inFlight) putsBack(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.attempts[id]
	return a != nil && a.end.Load().putBack != nil
}
