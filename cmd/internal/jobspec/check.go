package jobspec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// Checked is a job that can be added: its options are filled in, and the config lets it run.
type Checked struct {
	Job
	OwnID   bool // the producer chose the ID
	Rule    scheduler.Rule
	Shard   shard.Shard
	Warning string // why no worker with this config can run jobs of the type, or ""
}

// Check fills in the job, and returns an error if it could never run.
func (j Job) Check(defaults Options, c *config.Config) (Checked, error) {
	checked := Checked{Job: j, OwnID: j.ID != ""}
	var err error
	if checked.Warning, err = checkPayload(j, c); err != nil {
		return checked, err
	}
	checked.Job = j.Fill(defaults, c)
	j = checked.Job
	if checked.Rule, err = c.Tasks.Rule(&expression.Job{Type: j.Type, Queue: j.Queue, ID: j.ID, Payload: j.Payload}); err != nil {
		return checked, err
	}
	if err = checkNeeds(c, j.Queue, checked.Rule); err != nil {
		return checked, err
	}
	if !j.Deadline.IsZero() && time.Now().After(j.Deadline) {
		return checked, fmt.Errorf("deadline %s: want a time from now on", j.Deadline.Format(time.RFC3339))
	}
	checked.Shard, err = c.ShardOf(j.Task())
	return checked, err
}

// Added turns the error of a call that enqueues the job into one for the producer. It returns nil if
// the queue has the job now. If a random ID exists, an earlier try added the job, and its reply was
// lost. If another job is in the way, exists is true.
func (c Checked) Added(err error) (exists bool, _ error) {
	switch {
	case !c.OwnID && errors.Is(err, asynq.ErrTaskIDConflict):
		return false, nil
	case errors.Is(err, asynq.ErrTaskIDConflict):
		return true, fmt.Errorf("id %q: queue %s already has a job with this ID", c.ID, c.Queue)
	case errors.Is(err, asynq.ErrDuplicateTask):
		return true, fmt.Errorf("unique: queue %s already has a job with this type and payload", c.Queue)
	}
	return false, err
}

// checkPayload returns the error that the job's handler would return for the payload. The payload of
// a type that is not built in cannot be checked.
func checkPayload(j Job, c *config.Config) (warning string, err error) {
	err = tasks.Validate(j.Type, j.Payload)
	if errors.Is(err, tasks.ErrUnknownType) {
		return fmt.Sprintf("is not built in (%s, %sNAME): only your own worker program can run it", strings.Join(tasks.Types(), ", "), tasks.PrefixExec), nil
	}
	if name, isExec := strings.CutPrefix(j.Type, tasks.PrefixExec); isExec && err == nil && len(c.Sections) > 0 {
		if _, known := c.Commands[name]; !known {
			return "has no entry in commands: of the config: a worker with this config archives such jobs", nil
		}
	}
	return "", err
}

// checkNeeds returns an error for a need that the limits of the config can never meet.
func checkNeeds(c *config.Config, queue string, rule scheduler.Rule) error {
	if err := c.Sharded.Check(queue, shard.Shard{}, rule.Needs); err != nil {
		return err
	}
	for _, n := range rule.Needs {
		i := slices.IndexFunc(c.Limits, func(l throttle.Limit) bool { return l.Name == n.Limit })
		if i < 0 {
			continue
		}
		l := c.Limits[i]
		capacity := l.With(l.Overrides[n.Key]).MaxCost()
		if home, divided := c.Sharded.Home(l.Name); divided {
			capacity /= home.Count
		}
		switch {
		case len(l.Apps) > 0 && !slices.Contains(l.Apps, c.App) && rule.OnNoLimit != scheduler.ActionRun:
			return fmt.Errorf("limit %s is for other apps: see apps: and app: in the config", l.Name)
		case n.Cost > capacity:
			return fmt.Errorf("cost %d is above the capacity %d of limit %s: it can never run", n.Cost, capacity, l.Name)
		}
	}
	return nil
}
