package cron

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// Entry is a task that is enqueued at the times of a cron line. Each of these times is a tick.
type Entry struct {
	// Name is unique among the entries: 1 to 100 letters, digits and _ . : -
	Name string
	// Cron is five fields (minute, hour, day of month, month, day of week), six that begin with the
	// second, or one of @hourly, @daily, @weekly, @monthly, @yearly and @every with a duration of
	// whole seconds. @every ticks at the multiples of its duration since 1970, so all machines
	// agree. Required.
	//
	// A field is *, a value, a range or a list of these, with an optional step. Ranges may wrap
	// around (22-2, fri-mon), and 7 is Sunday, as 0 is. A step that is larger than its range is an
	// error, because "*/90" in the minutes would tick once an hour. Use @every 90m.
	Cron string `yaml:"cron"`
	// Zone is the IANA time zone of cron. The zero value means `UTC`.
	Zone string `yaml:"zone"`
	// Type is the type of the task. Required.
	Type string `yaml:"task"`
	// Payload returns the task's payload for a tick, in the entry's zone. If it fails or panics, the
	// tick gets no job and counts as failed. Several replicas may call it for the same tick, and
	// calls are concurrent. Nil means an empty payload.
	Payload func(tick time.Time) ([]byte, error)
	// Queue is the task's queue. The zero value means `default`.
	Queue string `yaml:"queue"`
	// Options are further options of the task: MaxRetry, Timeout, Retention and Group. A Retention
	// below five minutes is raised to five minutes, so that a late replica finds the finished job.
	// When asynq aggregates a Group, it deletes the group's jobs: a replica that stalls at that
	// moment can enqueue such a job again.
	Options []asynq.Option
	// Jitter delays the job, not the tick, by at most this much, in whole seconds. All replicas
	// compute the same delay for a tick. The zero value means none.
	Jitter time.Duration `yaml:"jitter"`
	// Missed says which missed ticks still run: none, the newest, or all. The zero value means
	// `skip`.
	Missed Missed `yaml:"missed"`
	// MissedMax limits `missed: all` to the newest ticks. The zero value means `100`.
	MissedMax int `yaml:"missed_max"`
	// Overlap says what happens at a tick whose previous job is unfinished. The zero value means
	// `allow`.
	Overlap Overlap `yaml:"overlap"`
	// OverlapCounts says which jobs are unfinished for `overlap: skip`. With running, a job that failed
	// and comes again after the schedule's next two ticks is not; with retrying, it is. A job that is
	// archived never is. The zero value means `running`.
	OverlapCounts OverlapCounts `yaml:"overlap_counts"`
	// Disabled stops the entry. Ticks while it is disabled do not count as missed.
	Disabled bool
}

// Missed selects which missed ticks still run. A tick is missed if no replica handles it within 30
// seconds. Ticks during a Pause are dropped, and do not count as missed.
type Missed string

// The values of Entry.Missed.
const (
	MissedSkip Missed = "skip" // none
	MissedOnce Missed = "once" // the newest; none if a newer tick is due and is not missed
	MissedAll  Missed = "all"  // all, oldest first, up to Entry.MissedMax
)

// UnmarshalText parses one of the values.
func (m *Missed) UnmarshalText(text []byte) error {
	return choose((*string)(m), text, "missed", "skip, once, all")
}

// Overlap selects whether a tick is dropped while an earlier job of the entry is unfinished.
type Overlap string

// The values of Entry.Overlap.
const (
	OverlapAllow Overlap = "allow" // every tick gets a job
	// OverlapSkip drops a tick while the last tick's job, or the job that Trigger enqueued last, is
	// unfinished.
	OverlapSkip Overlap = "skip"
)

// UnmarshalText parses one of the values.
func (o *Overlap) UnmarshalText(text []byte) error {
	return choose((*string)(o), text, "overlap", "allow, skip")
}

// OverlapCounts selects which jobs are unfinished for OverlapSkip. A job that is done, archived or
// deleted never is.
type OverlapCounts string

// The values of Entry.OverlapCounts.
const (
	// CountsRunning counts jobs that run, wait for permits or are about to run. It does not count a job
	// that failed, or was put back by its handler, and comes again after the entry's next two ticks.
	CountsRunning OverlapCounts = "running"
	// CountsRetrying counts jobs that come again at any time, too.
	CountsRetrying OverlapCounts = "retrying"
)

// UnmarshalText parses one of the values.
func (o *OverlapCounts) UnmarshalText(text []byte) error {
	return choose((*string)(o), text, "overlap_counts", "running, retrying")
}

// choose sets a field to the text, or returns an error if values does not list the text.
func choose(to *string, text []byte, field, values string) error {
	if !slices.Contains(strings.Split(values, ", "), string(text)) {
		return fieldError(field, string(text), "want one of "+values)
	}
	*to = string(text)
	return nil
}

func fieldError(field, value, want string) error {
	return &throttle.FieldError{Field: field, Value: strconv.Quote(value), Want: want}
}

// Validate returns all mistakes in the entry as one error, which joins a [throttle.FieldError] for
// each. Their fields have the names of config files. A line that never ticks, such as one for 31
// February, is a mistake.
func (e Entry) Validate() error {
	_, err := newSchedule(e)
	errs := []error{err}
	wrong := func(bad bool, field, value, want string) {
		if bad {
			errs = append(errs, fieldError(field, value, want))
		}
	}
	wrong(!entryName.MatchString(e.Name), "name", e.Name, "want 1 to 100 letters, digits and _ . : -")
	wrong(strings.TrimSpace(e.Type) == "", "task", e.Type, "want a task type such as http:request")
	wrong(e.Queue != "" && strings.TrimSpace(e.Queue) == "", "queue", e.Queue, "leave it out for the default queue")
	errs = append(errs, asynqdb.ValidateQueue(e.Queue))
	wrong(e.Jitter < 0 || e.Jitter%time.Second != 0, "jitter", e.Jitter.String(), "want whole seconds, such as 30s")
	wrong(e.MissedMax < 0, "missed_max", fmt.Sprint(e.MissedMax), "want 0 or more; 0 means 100")
	errs = append(errs,
		new(Missed).UnmarshalText([]byte(cmp.Or(e.Missed, MissedSkip))),
		new(Overlap).UnmarshalText([]byte(cmp.Or(e.Overlap, OverlapAllow))),
		new(OverlapCounts).UnmarshalText([]byte(cmp.Or(e.OverlapCounts, CountsRunning))))
	wrong(e.OverlapCounts != "" && e.Overlap != OverlapSkip, "overlap_counts", string(e.OverlapCounts), "want overlap: skip as well, or leave it out")
	for _, option := range e.Options {
		want, bad := forbiddenOptions[option.Type()]
		wrong(bad, "options", option.String(), want)
		wrong(option.Type() == asynq.GroupOpt && e.Jitter > 0, "options", option.String(), "leave out jitter: asynq does not aggregate delayed jobs")
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("schedule %q: %w", e.Name, err)
		}
	}
	return errors.Join(errs...)
}

// forbiddenOptions says what to use instead of each option that suits only a single job, or that
// the Runner itself sets.
var forbiddenOptions = map[asynq.OptionType]string{
	asynq.TaskIDOpt:    "leave it out: the job's ID is made of scope, entry and tick",
	asynq.QueueOpt:     "set queue instead",
	asynq.ProcessAtOpt: "leave it out: cron sets the time, and jitter a delay",
	asynq.ProcessInOpt: "leave it out: cron sets the time, and jitter a delay",
	asynq.DeadlineOpt:  "ticks cannot share a deadline: use timeout",
	asynq.UniqueOpt:    "use overlap: skip",
}

// entryName excludes the characters that separate a name from the rest of a job's ID.
var entryName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

// defaultScope is the scope whose name is not part of job IDs.
const defaultScope = "default"

// Origin is the entry and the tick that a job comes from.
type Origin struct {
	Scope string `json:"scope"`
	Entry string `json:"name"`
	// At is the tick. If Triggered, it is the time at which Trigger was called.
	At        time.Time `json:"at"`
	Triggered bool      `json:"triggered,omitempty"`
}

// OriginOf parses the ID of a job that a Runner enqueued. It reports false for an ID of any other
// form.
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
