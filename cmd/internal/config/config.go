// Package config reads headgate.yaml, and connects to the Redis that it names. Its types
// are plain data that other packages' values are made from; a file with errors gives all of
// them at once, each with its place and with what to write instead.
package config

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// Config is what a worker is told: where Redis is, what it runs, and which
// limits hold for what.
type Config struct {
	// Redis is where jobs and limits live. The zero value means the embedded Redis.
	Redis Redis `yaml:"redis"`
	// RedisTLS says whom to trust and what to show where Redis is over TLS.
	RedisTLS TLS `yaml:"redis_tls"`
	// App is this worker's name. A limit with a list of apps exists only for those.
	App string `yaml:"app"`
	// Scope is the name of a set of limits and of what waits for them. Workers of one scope
	// share its limits; those of another do not see them.
	Scope string `yaml:"scope"`
	// Concurrency is how many jobs run at once in one worker.
	Concurrency int `yaml:"concurrency"`
	// Queues are the queues to serve, each with its weight: of two that have jobs, one of
	// weight 6 is served six times as often as one of weight 1, at limits that both need, too.
	// A weight is 10000 at most.
	Queues map[string]int `yaml:"queues"`
	// StrictPriority has a queue served only while all queues of greater weight are empty.
	StrictPriority bool `yaml:"strict_priority"`
	// ShutdownTimeout is how long running jobs may take to finish when the worker stops. Then
	// they go back to their queue.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout"`
	// Listen is the address of the page, /metrics, /healthz and /readyz. A port alone, ":9090",
	// is for this machine only. The zero value means none.
	Listen string `yaml:"listen"`
	// Limits are in the order of their names.
	Limits []throttle.Limit
	// Tasks are the types of jobs, and how each runs. Types that are not here run without limits.
	Tasks Tasks `yaml:"tasks"`
	// HTTP says what the calls of jobs may do.
	HTTP HTTP `yaml:"http"`
	// Page says who may see the live page, and what of it.
	Page Page `yaml:"page"`
	// Crawl says how crawls show themselves, and what they keep.
	Crawl tasks.CrawlHandler `yaml:"crawl"`
	// Commands are what exec jobs may run.
	Commands Commands `yaml:"commands"`
	// Schedules enqueue jobs by the clock.
	Schedules Schedules `yaml:"schedules"`
	// Machine are errors about what this machine lacks: folders, files and secrets. They are for
	// the commands that run jobs: a command that only enqueues needs no token of the page.
	Machine Errors
	// Absent says why this is only the Default: "there is no headgate.yaml",
	// or that it is empty. Nothing is limited then, which nobody should have
	// to find out by the calls that go out.
	Absent string
}

// document is the file: a Config, except for what other packages' types hold.
type document struct {
	// Limits are what holds for all workers of the scope.
	Limits map[string]throttle.Limit `yaml:"limits"`
	Config
}

// Default is the config of an empty file: the embedded Redis, no limits.
func Default() *Config {
	return &Config{
		App:             "headgate",
		Scope:           "default",
		Concurrency:     10,
		Queues:          map[string]int{"default": 1},
		ShutdownTimeout: 8 * time.Second,
	}
}

// Load reads a file as Parse does. A file that does not exist is as good as an
// empty one.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		c := Default()
		c.Absent = "there is no " + path
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := Parse(path, data)
	if err == nil {
		c.Redis.beside = folder(path)
	}
	return c, err
}

// Parse reads a config; the name is the file's, for errors, which are of type
// Errors.
func Parse(name string, data []byte) (*Config, error) {
	d := newDecoder(name)
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // Windows editors write it
	doc := document{Config: *Default()}
	d.decode(data, &doc)

	d.checkRedis(&doc.Redis, doc.RedisTLS)
	d.checkWorker(&doc.Config)
	doc.Config.Limits = d.limits(doc.Limits)
	d.checkCommands(doc.Commands)
	types := doc.Commands.Types()
	d.checkTasks(doc.Tasks, doc.Config.Limits, types)
	d.spellOverrides(doc.Config.Limits, doc.Tasks)
	d.checkHTTP(doc.HTTP)
	d.checkPage(&doc.Page)
	d.checkCrawl(doc.Crawl)
	d.checkSchedules(doc.Schedules, doc.Tasks, doc.Queues, types)
	if len(d.errs) > 0 {
		slices.SortStableFunc(d.errs, func(a, b *Error) int { // into the file's order
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
		})
		if d.more > 0 {
			last := *d.errs[len(d.errs)-1]
			last.Path, last.Message = "", fmt.Sprintf("and %d more", d.more)
			d.errs = append(d.errs, &last)
		}
		return nil, d.errs
	}
	doc.Config.Machine = d.machineErrs
	if len(d.at) == 0 {
		doc.Config.Absent = name + " is empty"
	}
	return &doc.Config, nil
}

func (d *decoder) checkWorker(c *Config) {
	d.checkName("app", c.App)
	d.checkName("scope", c.Scope)
	d.want(c.Concurrency >= 1, "concurrency", "%d: want how many jobs may run at once, at least 1", c.Concurrency)
	if _, err := ListenAddress(c.Listen); err != nil {
		d.errorf("listen", "%v", err)
	}
	d.want(c.ShutdownTimeout > 0, "shutdown_timeout", "0s: want some time for running jobs to finish, such as 8s")
	for _, queue := range slices.Sorted(maps.Keys(c.Queues)) {
		path := join("queues", queue)
		d.checkName(path, queue)
		d.want(c.Queues[queue] >= 1, path, "%d: want a weight of at least 1; leave the queue out to not serve it", c.Queues[queue])
		d.want(c.Queues[queue] <= fairqueue.MaxQueueWeight, path, "%d: want a weight of at most %d", c.Queues[queue], fairqueue.MaxQueueWeight)
	}
}

// RuleIn finds the rule of a task in the config that is current at the time.
func RuleIn(current func() *Config) func(context.Context, *asynq.Task) (scheduler.Rule, error) {
	return func(ctx context.Context, task *asynq.Task) (scheduler.Rule, error) {
		rule, err := current().Tasks.Rule(JobOf(ctx, task))
		if err != nil {
			err = unchanging{err}
		}
		return rule, err
	}
}

// WantsOf is what a pending job will ask for by the config, if a worker with it takes the job.
func (c *Config) WantsOf(_ context.Context, job throttle.JobID, task *asynq.Task) (stats.Requirements, bool) {
	rule, err := c.Tasks.Rule(&expression.Job{Type: task.Type(), Queue: job.Queue, ID: job.ID, Payload: task.Payload()})
	if err != nil { // the job will be archived
		return stats.Requirements{}, true
	}
	return stats.Requirements{Needs: rule.Needs, FairnessKey: rule.FairnessKey, FairnessWeight: rule.FairnessWeight}, true
}

// Serves are the queues that a worker with the config takes jobs from.
func (c *Config) Serves() []string { return slices.Sorted(maps.Keys(c.Queues)) }

// unchanging is an error that comes again with each attempt, since the payload stays as it
// is. To asynq it is asynq.SkipRetry, which archives the job.
type unchanging struct{ error }

// Is tells asynq, which asks whether the error is its own.
func (unchanging) Is(target error) bool { return target == asynq.SkipRetry }

func (e unchanging) Unwrap() error { return e.error }

// Limiter is the limiter of the config's scope and app.
func (c *Config) Limiter(rdb redis.UniversalClient) *waitdb.DB {
	return waitdb.New(throttle.New(rdb, throttle.Options{Scope: c.Scope, App: c.App}))
}
