package cron

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/words"
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
	//
	// A field is *, a value, a range or a list of these, with a step if wanted. Ranges may
	// wrap around (22-2, fri-mon), and 7 is Sunday, as 0 is. A step that is larger than what it
	// divides is wrong: "*/90" minutes would be once an hour, while @every 90m is what it says.
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

// Missed says what becomes of missed ticks: those that are more than 30
// seconds late when a process comes back to look, as after an outage of Redis or of
// all replicas. Ticks during a Pause are not missed.
type Missed int

const (
	// MissedSkip drops them. It is the zero value.
	MissedSkip Missed = iota
	// MissedOnce runs the newest of them, unless a tick that is not late runs
	// at that moment anyway.
	MissedOnce
	// MissedAll runs them all, oldest first, up to Entry.MissedMax.
	MissedAll
)

var missedWords = words.Words{MissedSkip: "skip", MissedOnce: "once", MissedAll: "all"}

// String is the word as config files write it: skip, once or all.
func (m Missed) String() string { return missedWords.Text(int(m)) }

// MarshalText writes what String does. It fails for what is not one of the three.
func (m Missed) MarshalText() ([]byte, error) { return missedWords.Marshal(int(m)) }

// UnmarshalText reads what String writes. Its error lists the three.
func (m *Missed) UnmarshalText(text []byte) error { return missedWords.Unmarshal(text, (*int)(m)) }

// Overlap says whether jobs of one entry may wait or run at the same time.
type Overlap int

const (
	// OverlapAllow lets them. It is the zero value.
	OverlapAllow Overlap = iota
	// OverlapSkip drops a tick while the job of the tick before it, or the one
	// that Trigger enqueued last, is unfinished.
	OverlapSkip
)

var overlapWords = words.Words{OverlapAllow: "allow", OverlapSkip: "skip"}

// String is the word as config files write it: allow or skip.
func (o Overlap) String() string { return overlapWords.Text(int(o)) }

// MarshalText writes what String does. It fails for what is neither.
func (o Overlap) MarshalText() ([]byte, error) { return overlapWords.Marshal(int(o)) }

// UnmarshalText reads what String writes. Its error names both.
func (o *Overlap) UnmarshalText(text []byte) error { return overlapWords.Unmarshal(text, (*int)(o)) }

// EntryError is one thing that is wrong with an entry. Its parts are apart so
// that a program can say it in its own words: a config file knows the line of
// the field, a form its place on the screen.
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

// Validate reports everything that is wrong with the entry: an error that joins
// an [EntryError] for each, or nil. A line that never ticks, such as one for 31
// February, is wrong. Whether anything handles the task's type it cannot know.
func (e Entry) Validate() error {
	var errs []error
	wrong := func(bad bool, field, value, hint string) {
		if bad {
			errs = append(errs, &EntryError{e.Name, field, value, hint})
		}
	}
	wrong(!entryName.MatchString(e.Name), "name", e.Name,
		"must be 1 to 100 letters, digits and _ . : -")
	// It says one thing that is wrong of zone and cron together: what a line means is not
	// known without its zone.
	if _, err := newTimetable(e); err != nil {
		errs = append(errs, err)
	}
	wrong(strings.TrimSpace(e.Type) == "", "type", e.Type,
		"must be a task type such as http:request")
	wrong(e.Queue != "" && strings.TrimSpace(e.Queue) == "", "queue", e.Queue,
		"must not be blank: leave it out for the default queue")
	wrong(e.Jitter < 0 || e.Jitter%time.Second != 0, "jitter", e.Jitter.String(),
		"must be whole seconds, such as 30s")
	wrong(!missedWords.Has(int(e.Missed)), "missed", e.Missed.String(), "must be one of "+missedWords.String())
	wrong(e.MissedMax < 0, "missed_max", fmt.Sprint(e.MissedMax), "must be above 0")
	wrong(!overlapWords.Has(int(e.Overlap)), "overlap", e.Overlap.String(), "must be one of "+overlapWords.String())
	for _, option := range e.Options {
		hint, bad := unfit[option.Type()]
		wrong(bad, "options", option.String(), hint)
		wrong(option.Type() == asynq.GroupOpt && e.Jitter > 0, "options", option.String(),
			"must go, or jitter must: asynq never aggregates a delayed job")
	}
	return errors.Join(errs...)
}

// unfit are options that only fit a single job, or that the runner sets itself.
var unfit = map[asynq.OptionType]string{
	asynq.TaskIDOpt:    "must go: the id of a job is its scope, entry and tick",
	asynq.QueueOpt:     "must go: name the queue in queue",
	asynq.ProcessAtOpt: "must go: cron says when, and jitter delays the job",
	asynq.ProcessInOpt: "must go: cron says when, and jitter delays the job",
	asynq.DeadlineOpt:  "must go: a fixed moment does not fit every tick, use timeout",
	asynq.UniqueOpt:    "must go: use overlap: skip",
}

// entryName leaves out what separates a name from the rest of a job's id.
var entryName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

// defaultScope has no part in the ids of jobs. They are what they were before
// there were scopes in them, so that old and new replicas agree on them while
// a program is updated.
const defaultScope = "default"

// Origin is where a job comes from.
type Origin struct {
	Scope string `json:"scope"`
	Entry string `json:"name"`
	// At is the tick, or the moment of the Trigger if Triggered.
	At        time.Time `json:"at"`
	Triggered bool      `json:"triggered,omitempty"`
}

// OriginOf reads the id of a job that an entry enqueued. It reports false for
// every other id, but cannot tell one that somebody has made up in the same form.
// The scope must have the letters of an entry's name.
func OriginOf(id string) (o Origin, ok bool) {
	scope, name, scoped := strings.Cut(id, "/")
	if !scoped {
		scope, name = defaultScope, id
	}
	entry, when, _ := strings.Cut(name, "@")
	number, triggered := strings.CutPrefix(when, "run-")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !entryName.MatchString(entry) || !entryName.MatchString(scope) {
		return Origin{}, false
	}
	at := time.Unix(n, 0)
	if triggered {
		at = time.UnixMicro(n)
	}
	return Origin{scope, entry, at, triggered}, true
}
