package dispatcher

import (
	"slices"
	"time"
)

const (
	// tending is how often there is something to look after; up to seldom where no
	// turn is due before, since then no put-back ends before either.
	tending = 2 * time.Second
	seldom  = 30 * time.Second
	// soon is how long before its end a put-back is moved on, at least. With
	// tending it is as long as a put-back outlasts the wait that was told: where
	// that was true, the job is called before its put-back need be moved.
	soon = 3 * time.Second
	// Passes is how often all waiting jobs are compared with asynq's.
	ReconcileInterval = time.Minute
	// again is how soon they are compared again where a called job was gone: who
	// deletes one may have deleted all, and those behind must not wait for them.
	again = 5 * time.Second
	// Upkeep goes on for workFor at a time, and rests for restFor times as long, but
	// not longer than tending, since a part may wait for Redis: meanwhile nobody has a
	// turn.
	workFor = 20 * time.Millisecond
	restFor = 3
)

// upkeep keeps the limiter's side and asynq's in step, a part at a time. asynq
// is the truth: tickets of jobs that an operator, a crash or a flushed Redis took
// away are forgotten, and denied jobs that no lane knows are sent back to ask.
//
// Two things are done. Every few seconds the put-backs of waiting jobs that are about
// to end are moved on, or those jobs would come without permits. And once a minute a
// comparison goes through all that wait. Both rest between their parts, since the same
// goroutine gives the turns.
type upkeep struct {
	next   time.Time // when put-backs are to be moved on
	queues []string  // whose jobs wait
	moves  postponing
	pass   comparison
	begun  time.Time // when the last pass began; zero: one is due
	missed bool      // whether a called job was gone since
	rests  time.Time // when the next part of either is to be done
	found  found
}

// found is what was not as it should be, until the end of a pass says so: whoever
// deletes a thousand jobs is told so once.
type found struct {
	forgotten, sent int
	one             string // of the jobs that were forgotten
	mended          int    // records, lanes and counts that were not in order
}

// add has the put-backs of a queue looked after, from its first lane on. Comparisons
// go through all queues that asynq knows.
func (u *upkeep) add(queue string) {
	if i, found := slices.BinarySearch(u.queues, queue); !found {
		u.queues = slices.Insert(u.queues, i, queue)
	}
}

// miss notes that a called job was gone.
func (u *upkeep) miss() {
	if !u.missed {
		u.missed, u.next = true, time.Now()
	}
}

// lost notes that Redis may know less than it did: all is compared anew, and at once.
func (u *upkeep) lost() { u.pass, u.begun, u.next = comparison{}, time.Time{}, time.Now() }

// underway reports whether anything that was begun is not at its end.
func (u *upkeep) underway() bool { return u.moves.underway() || u.pass.underway() }

// due is when there is something to look after, or to go on with.
func (u *upkeep) due() time.Time {
	if u.underway() && u.rests.Before(u.next) {
		return u.rests
	}
	return u.next
}
