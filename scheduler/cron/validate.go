package cron

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

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

// entryName leaves out what separates a name from the rest of a job's id.
var entryName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

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
	return errors.Join(append(errs, e.validateOptions()...)...)
}

// validateOptions refuses the options that only fit a single job, or that the
// runner sets itself.
func (e Entry) validateOptions() []error {
	var errs []error
	for _, option := range e.Options {
		hint := ""
		switch option.Type() {
		case asynq.TaskIDOpt:
			hint = "must go: the id of a job is its scope, entry and tick"
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
