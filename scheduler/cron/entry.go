package cron

import (
	"time"

	"github.com/hibiken/asynq"
)

// Entry is a task that is enqueued again and again, at the times of a cron
// line. Each of these times is a tick.
type Entry struct {
	// Name is the entry's own: letters, digits and _ . : - up to 100. The job
	// of a tick has the id Scope/Name@seconds, the tick as Unix time; in the
	// default scope it is Name@seconds.
	Name string
	// Cron is five fields (minute, hour, day of month, month, day of week), six
	// with Seconds, or one of @hourly, @daily, @weekly, @monthly, @yearly and
	// @every with a duration of whole seconds. An @every ticks at the multiples
	// of its duration since 1970, the same on each machine and after a restart.
	Cron string
	// Seconds says that Cron starts with a field for the second.
	Seconds bool
	// Zone is the IANA time zone of Cron. The zero value means UTC.
	Zone string
	// Type is the type of the task.
	Type string
	// Payload gives the task's payload for a tick, in the entry's zone. When it
	// fails or panics there is no job for that tick, which counts as failed. More
	// than one replica may ask for the same tick, and calls for several entries
	// come at once. Nil means an empty payload.
	Payload func(tick time.Time) ([]byte, error)
	// Queue is the task's queue. The zero value means asynq's default queue.
	Queue string
	// Options are further options of the task: MaxRetry, Timeout, Retention and
	// Group. A Retention is at least five minutes, because the finished job
	// keeps a late replica from adding it again. A job of a Group is gone as
	// soon as the group is aggregated: a replica that stalls at that moment
	// can add it again.
	Options []asynq.Option
	// Jitter delays the job, not the tick, by up to so much, in whole seconds.
	// The delay of a tick is the same whoever enqueues it. The zero value means
	// none.
	Jitter time.Duration
	// Missed says what becomes of ticks that no process was there for.
	Missed Missed
	// MissedMax bounds MissedAll: only the newest so many run. The zero value
	// means 100.
	MissedMax int
	// Overlap says what happens at a tick whose previous job is unfinished.
	Overlap Overlap
	// Disabled leaves the entry out for now. The ticks of that time do not
	// count as missed.
	Disabled bool
}

// Next gives the entry's first tick after a moment, in the entry's zone. It is
// the zero time when the entry is invalid. It asks nobody: whether the entry is
// paused or disabled, and what became of earlier ticks, does not matter to it. It
// reads the cron line anew each time.
//
// An entry for every hour (an hour field of * or all 24) ticks whenever the
// zone's wall clock matches its fields, so it goes on through a change of the
// clocks: it neither skips nor repeats a moment. Every other entry ticks once
// for each matching time of day: a time that the clocks jump over in spring
// ticks at the end of the gap, several of them as one, and a time that comes
// twice in autumn ticks the first time.
func (e Entry) Next(after time.Time) time.Time {
	table, err := newTimetable(e)
	if err != nil {
		return time.Time{}
	}
	return table.next(after)
}
