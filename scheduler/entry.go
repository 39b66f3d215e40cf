package scheduler

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

// Entry is a task that is enqueued again and again, at the times of a cron
// line. Each of these times is a tick.
type Entry struct {
	// Name is the entry's own: letters, digits and _ . : - up to 100. The job
	// of a tick has the id Name@seconds, the tick as Unix time.
	Name string
	// Cron is five fields (minute, hour, day of month, month, day of week), six
	// with Seconds, or one of @hourly, @daily, @weekly, @monthly, @yearly and
	// @every with a duration of whole seconds. An @every ticks at the multiples
	// of its duration since 1970, the same on each machine and after a restart.
	Cron string
	// Seconds is whether Cron starts with a field for the second.
	Seconds bool
	// Zone is the IANA time zone of Cron. The zero value means UTC.
	Zone string
	// Type is the type of the task.
	Type string
	// Payload gives the task's payload for a tick. When it fails there is no
	// job for that tick. Nil means an empty payload.
	Payload func(tick time.Time) ([]byte, error)
	// Queue is the task's queue. The zero value means asynq's default queue.
	Queue string
	// Options are further options of the task: MaxRetry, Timeout, Retention and
	// Group. A Retention is at least five minutes, because the finished job
	// keeps a late replica from adding it again.
	Options []asynq.Option
	// Jitter delays the job, not the tick, by up to so much, in whole seconds.
	// The delay of a tick is the same whoever enqueues it.
	Jitter time.Duration
	// Missed says what becomes of ticks that no process was there for. The zero
	// value means MissedSkip.
	Missed Missed
	// MissedMax bounds MissedAll: only the newest so many run. The zero value
	// means 100.
	MissedMax int
	// Overlap says what happens at a tick whose previous job is unfinished. The
	// zero value means OverlapAllow.
	Overlap Overlap
	// Disabled is whether the entry is left out for now. The ticks of that time
	// do not count as missed.
	Disabled bool
}

// Missed says what becomes of missed ticks: those that are more than 30
// seconds late when a process comes back to look.
type Missed string

const (
	// MissedSkip drops them.
	MissedSkip Missed = "skip"
	// MissedOnce runs the newest of them, unless a tick that is not late runs
	// at that moment anyway.
	MissedOnce Missed = "once"
	// MissedAll runs them all, oldest first, up to Entry.MissedMax.
	MissedAll Missed = "all"
)

// Overlap says whether jobs of one entry may wait or run at the same time.
type Overlap string

const (
	// OverlapAllow lets them.
	OverlapAllow Overlap = "allow"
	// OverlapSkip drops a tick while the job before it is unfinished.
	OverlapSkip Overlap = "skip"
)

// EntryError is one thing that is wrong with an entry.
type EntryError struct {
	Entry string // the entry's Name
	Field string // the field as config files write it: name, cron, zone …
	Value string // what the field holds
	Hint  string // what is wrong with it and what would be right
}

// Error names the entry, the field and its value.
func (e *EntryError) Error() string {
	return fmt.Sprintf("schedule %q: %s %q %s", e.Entry, e.Field, e.Value, e.Hint)
}

var entryName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

// Validate reports everything that is wrong with the entry, as *EntryErrors
// joined into one.
func (e Entry) Validate() error {
	var errs []error
	wrong := func(bad bool, field, value, hint string) {
		if bad {
			errs = append(errs, &EntryError{e.Name, field, value, hint})
		}
	}
	wrong(!entryName.MatchString(e.Name), "name", e.Name,
		"must be 1 to 100 letters, digits and _ . : -")
	if _, err := newTickRule(e); err != nil {
		errs = append(errs, err)
	}
	wrong(strings.TrimSpace(e.Type) == "", "type", e.Type,
		"must be a task type such as http:request")
	wrong(e.Queue != "" && strings.TrimSpace(e.Queue) == "", "queue", e.Queue,
		"must not be blank: leave it out for the default queue")
	wrong(e.Jitter < 0 || e.Jitter%time.Second != 0, "jitter", e.Jitter.String(),
		"must be whole seconds, such as 30s")
	wrong(!e.Missed.valid(), "missed", string(e.Missed), "must be skip, once or all")
	wrong(e.MissedMax < 0, "missed_max", fmt.Sprint(e.MissedMax), "must be above 0")
	wrong(!e.Overlap.valid(), "overlap", string(e.Overlap), "must be allow or skip")
	return errors.Join(append(errs, e.validateOptions()...)...)
}

func (m Missed) valid() bool {
	return m == "" || m == MissedSkip || m == MissedOnce || m == MissedAll
}

func (o Overlap) valid() bool {
	return o == "" || o == OverlapAllow || o == OverlapSkip
}

// validateOptions refuses the options that only fit a single job, or that the
// runner sets itself.
func (e Entry) validateOptions() []error {
	var errs []error
	for _, option := range e.Options {
		hint := ""
		switch option.Type() {
		case asynq.TaskIDOpt:
			hint = "must go: the id of a job is its entry and tick"
		case asynq.QueueOpt:
			hint = "must go: name the queue in queue"
		case asynq.ProcessAtOpt, asynq.ProcessInOpt:
			hint = "must go: cron says when, and jitter delays the job"
		case asynq.DeadlineOpt:
			hint = "must go: a fixed moment does not fit every tick, use timeout"
		case asynq.UniqueOpt:
			hint = "must go: use overlap: skip"
		case asynq.GroupOpt:
			if e.Jitter > 0 {
				hint = "must go, or jitter must: asynq never aggregates a delayed job"
			}
		}
		if hint != "" {
			errs = append(errs, &EntryError{e.Name, "options", option.String(), hint})
		}
	}
	return errs
}

// Next gives the entry's first tick after a moment, in the entry's zone. It is
// the zero time when the entry is invalid.
//
// An entry for every hour (an hour field of * or all 24) ticks whenever the
// zone's wall clock matches its fields, so it goes on through a change of the
// clocks: it neither skips nor repeats a moment. Every other entry ticks once
// for each matching time of day: a time that the clocks jump over in spring
// ticks at the end of the gap, several of them as one, and a time that comes
// twice in autumn ticks the first time.
func (e Entry) Next(after time.Time) time.Time {
	rule, err := newTickRule(e)
	if err != nil {
		return time.Time{}
	}
	return rule.next(after)
}
