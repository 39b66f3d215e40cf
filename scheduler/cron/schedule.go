package cron

import "time"

// A schedule is an entry and what this process knows of it. What all processes
// know is its state. A change of the entry makes a new schedule.
type schedule struct {
	entry     Entry
	timetable *timetable
	leaving   bool // removed or disabled: the state has to say so
	progress
}

type progress struct {
	adopted  bool      // the state in Redis was made for the schedule's timetable
	released bool      // a leaving schedule's state says that it has left
	known    time.Time // the newest last seen, in case Redis loses its data
	look     time.Time // when to look at it again, by Redis's clock
	fails    int       // tries in a row that an error ended
	tried    time.Time // when it last enqueued, by our own clock
}

// inherit takes over what is known from the schedule of the same name before.
// A new timetable has still to be adopted. One that was disabled knows nothing of
// use: the ticks of that time are not to be made up for.
func (s *schedule) inherit(old *schedule) {
	if old == nil || old.entry.Disabled {
		return
	}
	s.known = old.known
	if old.timetable.spec == s.timetable.spec {
		s.progress = old.progress
	}
}

// leave copies the schedule for the time until Redis knows that it is gone.
func (s *schedule) leave() *schedule {
	left := *s
	left.leaving, left.look = true, time.Time{}
	return &left
}
