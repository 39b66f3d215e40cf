package config

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// Schedule enqueues a job at every tick of a cron expression.
type Schedule struct {
	cron.Entry
	// Enabled turns the schedule on. The zero value means `true`.
	Enabled bool `yaml:"enabled"`
	// MaxRetry is the number of retries of a failed job. Nil means the task's.
	MaxRetry *int `yaml:"max_retry"`
	// Timeout is the longest time that one run may take. The zero value means the task's.
	Timeout time.Duration `yaml:"timeout"`
	// Retention is the time for which the finished job is kept, at least five minutes. The zero
	// value means the task's.
	Retention time.Duration `yaml:"retention"`
	// Template is the job's payload. Its texts can have ${…} with expressions that use tick.
	Template any `yaml:"payload"`
}

// Schedules are the cron schedules, by name.
type Schedules map[string]Schedule

// entry converts the schedule for package cron. It uses the name of the schedule as the entry's.
func (s Schedule) entry(name string) cron.Entry {
	e := s.Entry
	e.Name, e.Payload, e.Disabled = name, s.payloadAt, !s.Enabled
	if s.MaxRetry != nil {
		e.Options = append(e.Options, asynq.MaxRetry(*s.MaxRetry))
	}
	if s.Timeout > 0 {
		e.Options = append(e.Options, asynq.Timeout(s.Timeout))
	}
	if s.Retention > 0 {
		e.Options = append(e.Options, asynq.Retention(s.Retention))
	}
	return e
}

// Entries returns all schedules, sorted by name.
func (s Schedules) Entries() []cron.Entry {
	var entries []cron.Entry
	for _, name := range slices.Sorted(maps.Keys(s)) {
		entries = append(entries, s[name].entry(name))
	}
	return entries
}

// payloadAt returns the payload of a tick as JSON, or the error of the first expression that fails.
func (s Schedule) payloadAt(tick time.Time) ([]byte, error) {
	if s.Template == nil {
		return nil, nil
	}
	return FillPayload(s.Type, s.Template, expression.Tick(tick))
}

// checkSchedules sets defaults, compiles payloads and reports errors.
func (d *decoder) checkSchedules(all Schedules, tasks Tasks, queues Queues, types []string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		path := join("schedules", name)
		s := all[name]
		if !d.has(path + ".enabled") {
			s.Enabled = true
		}
		if s.Queue == "" {
			s.Queue = "default"
		}
		d.checkReference(path+".queue", "queue", s.Queue, slices.Sorted(maps.Keys(queues)))
		if s.Type != "" {
			d.checkReference(path+".task", "task type", s.Type, types)
		}
		d.checkMaxRetry(path+".max_retry", s.MaxRetry)
		d.checkSeconds(path+".timeout", s.Timeout)
		d.checkSeconds(path+".retention", s.Retention)
		s.MaxRetry = cmp.Or(s.MaxRetry, tasks[s.Type].MaxRetry)
		s.Timeout = cmp.Or(s.Timeout, tasks[s.Type].Timeout)
		s.Retention = cmp.Or(s.Retention, tasks[s.Type].Retention)
		s.Template = compilePayload(path+".payload", s.Type, s.Template, expression.TickVars, d.errorf)
		d.checkEntry(path, s.entry(name))
		d.checkPayload(path+".payload", s, name)
		all[name] = s
	}
}

// checkEntry reports each error of Validate at its field.
func (d *decoder) checkEntry(path string, e cron.Entry) {
	for _, wrong := range errorsOf[*throttle.FieldError](e.Validate()) {
		at, value := path+"."+wrong.Field, wrong.Value
		if wrong.Field == "name" {
			at = path
		}
		if value == `""` {
			value = "missing"
		}
		d.errorf(at, "%s: %s", value, wrong.Want)
	}
}

// checkPayload reports the error of the payload at one tick, the first since the year 2000.
func (d *decoder) checkPayload(path string, s Schedule, name string) {
	if d.broken(path) || !d.errorFree(path) {
		return
	}
	tick := s.entry(name).Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	payload, err := s.payloadAt(tick)
	if err == nil {
		err = tasks.Validate(s.Type, payload)
	}
	if err != nil && !errors.Is(err, tasks.ErrUnknownType) {
		d.errorf(path, "%v", err)
	}
}
