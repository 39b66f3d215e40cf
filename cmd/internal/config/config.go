// Package config reads headgate.yaml, and connects to the configured Redis. It returns all errors of
// a file at once, each with its position and with what to write instead.
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
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// Config is the content of a config file.
type Config struct {
	// Redis is the URL of the Redis that stores jobs and limits. The zero value means the embedded
	// Redis.
	Redis Redis `yaml:"redis"`
	// RedisTLS has the certificates for a Redis over TLS.
	RedisTLS TLS `yaml:"redis_tls"`
	// App is this worker's name. A limit with a list of apps exists only for these apps.
	App string `yaml:"app"`
	// Scope is the name of a set of limits. Workers share limits only if they have the same scope.
	Scope string `yaml:"scope"`
	// Concurrency is the number of jobs that run at once in one worker.
	Concurrency int `yaml:"concurrency"`
	// Queues are the queues to serve, by name.
	Queues Queues `yaml:"queues"`
	// StrictPriority serves a queue only while all queues of greater weight are empty.
	StrictPriority bool `yaml:"strict_priority"`
	// ShutdownTimeout is the time that running jobs have to finish when the worker stops. After this
	// time, unfinished jobs go back to their queues. Calls that stream for a minute need more than a
	// minute here, and what stops the worker must wait for two seconds more: TimeoutStopSec of systemd,
	// stop_grace_period of a container.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout"`
	// ArchiveRetention is the time for which jobs that failed for good are kept.
	ArchiveRetention time.Duration `yaml:"archive_retention"`
	// UnknownFor is how long a job is put back for other workers if the workers that take it do not
	// know its type or command, or their config does not allow what it needs. Then it fails.
	UnknownFor time.Duration `yaml:"unknown_for"`
	// Listen is the address of the page, the API, /metrics, /healthz and /readyz. An address without a
	// host, such as ":9090", means localhost. The zero value means none.
	Listen string           `yaml:"listen"`
	Limits []throttle.Limit // sorted by name
	// Tasks are the types of jobs, and how each runs. Other types run without limits.
	Tasks Tasks `yaml:"tasks"`
	// HTTP has the permissions and settings of the HTTP calls of jobs.
	HTTP HTTP `yaml:"http"`
	// Page has the authentication and the permissions of the live page.
	Page Page `yaml:"page"`
	// API lets other programs add jobs over HTTP. The zero value means off.
	API API `yaml:"api"`
	// Crawl has the settings of crawls, such as the crawler's name and the folder for pages.
	Crawl tasks.CrawlHandler `yaml:"crawl"`
	// Commands are the commands that exec jobs may run.
	Commands Commands `yaml:"commands"`
	// Schedules are the cron schedules.
	Schedules Schedules `yaml:"schedules"`
	// OnDone is the job to enqueue when all jobs of a batch have ended. The program that enqueues the batch
	// and the worker need the same on_done. Nil means none.
	OnDone *Then `yaml:"on_done"`
	// Sharded are the sharded queues with their limits.
	Sharded shard.Queues
	// Sections are the texts of the file's top-level fields, by name.
	Sections map[string]string
	// MachineErrors are errors about folders, files and secrets that are missing on this machine.
	// Commands that run jobs fail with these errors. Commands that only enqueue jobs ignore them.
	MachineErrors Errors
	// FileMissing means that there is no file.
	FileMissing bool
	// DefaultReason says why this is the Default: the file is missing or empty. DefaultReason is ""
	// if the file has fields.
	DefaultReason string
}

// document is the content of a file. Unlike in Config, its limits are a map.
type document struct {
	// Limits are the limits for all workers of the scope, by name.
	Limits map[string]throttle.Limit `yaml:"limits"`
	Config
}

// Default is the config of an empty file: the embedded Redis and no limits.
func Default() *Config {
	return &Config{
		App:             "headgate",
		Scope:           "default",
		Concurrency:     10,
		Queues:          Queues{"default": {Weight: 1}},
		ShutdownTimeout: 8 * time.Second, ArchiveRetention: 90 * 24 * time.Hour,
		UnknownFor: scheduler.DefaultUnknownFor,
	}
}

// Load reads a config file. If the file is missing, Load returns the Default.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		c := Default()
		c.FileMissing, c.DefaultReason = true, "there is no "+path
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := Parse(path, data)
	if err == nil {
		c.Redis.configFolder = folderOf(path)
	}
	return c, err
}

// Parse reads the content of a config file. Its errors are of type Errors, and show name as the
// file's name.
func Parse(name string, data []byte) (*Config, error) {
	d := newDecoder(name)
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // Windows editors write this byte order mark
	doc := document{Config: *Default()}
	d.decode(data, &doc)

	d.checkRedis(&doc.Redis, doc.RedisTLS)
	d.checkWorker(&doc.Config)
	doc.Config.Limits = d.checkLimits(doc.Limits)
	d.addCrawlLimit(&doc.Config)
	d.checkCommands(doc.Commands)
	types := doc.Commands.Types()
	d.checkTasks(doc.Tasks, doc.Config.Limits, types)
	d.checkShards(&doc.Config)
	d.normalizeOverrides(doc.Config.Limits, doc.Tasks)
	d.checkHTTP(doc.HTTP)
	d.checkPage(&doc.Page)
	d.checkAPI(&doc.API)
	d.checkCrawl(doc.Crawl)
	d.checkSchedules(doc.Schedules, doc.Tasks, doc.Queues, types)
	if doc.OnDone != nil {
		d.checkNext("on_done", doc.OnDone, types)
	}
	if len(d.errs) > 0 {
		slices.SortStableFunc(d.errs, func(a, b *Error) int { // into the file's order
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
		})
		return nil, d.errs
	}
	doc.Config.MachineErrors, doc.Config.Sections = d.machineErrs, d.sections
	if len(d.positions) == 0 {
		doc.Config.DefaultReason = name + " is empty"
	}
	return &doc.Config, nil
}

// NeedsRestart returns the top-level fields whose change in next needs a restart of the worker.
func (c *Config) NeedsRestart(next *Config) (fields []string) {
	all := map[string]string{}
	maps.Copy(all, c.Sections)
	maps.Copy(all, next.Sections)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if c.Sections[name] != next.Sections[name] && name != "limits" && name != "tasks" && name != "schedules" && name != "on_done" {
			fields = append(fields, name)
		}
	}
	return fields
}

func (d *decoder) checkWorker(c *Config) {
	d.checkName("app", c.App)
	d.checkName("scope", c.Scope)
	d.want(c.Concurrency >= 1, "concurrency", "%d: want how many jobs may run at once, at least 1", c.Concurrency)
	if _, err := ListenAddress(c.Listen); err != nil {
		d.errorf("listen", "%v", err)
	}
	d.want(c.ShutdownTimeout > 0, "shutdown_timeout", "0s: want some time for running jobs to finish, such as 8s")
	d.want(c.ArchiveRetention >= time.Second, "archive_retention", "%s: want how long archived jobs are kept, at least 1s", c.ArchiveRetention)
	d.want(c.UnknownFor > 0, "unknown_for", "%s: want some time, such as 10m", c.UnknownFor)
	d.checkQueues(c.Queues)
}

// RuleIn returns a function that finds the rule of a task in the current config.
func RuleIn(current func() *Config) func(context.Context, *asynq.Task) (scheduler.Rule, error) {
	return func(ctx context.Context, task *asynq.Task) (scheduler.Rule, error) {
		rule, err := current().Tasks.Rule(JobOf(ctx, task))
		if err != nil {
			err = fmt.Errorf("%w: %w", err, asynq.SkipRetry) // a retry has the same payload
		}
		return rule, err
	}
}

// ServedQueues returns the asynq queues that a worker with the config serves.
func (c *Config) ServedQueues() (names []string) {
	for _, queue := range slices.Sorted(maps.Keys(c.Queues)) {
		names = append(names, c.Sharded.Names(queue)...)
	}
	return names
}

// WaitDB returns the limiter and the waiting jobs of the config's scope and app.
func (c *Config) WaitDB(rdb redis.UniversalClient) *waitdb.DB {
	return waitdb.New(throttle.New(rdb, throttle.Options{Scope: c.Scope, App: c.App}))
}

// Inspect returns an inspector of the config's queues, limits and rules.
func (c *Config) Inspect(rdb redis.UniversalClient) *inspect.Queues {
	q := inspect.New(c.WaitDB(rdb))
	q.Sharded = c.Sharded
	q.Rules = inspect.Rules{ServedQueues: c.ServedQueues(), Limits: c.Limits, RuleFor: func(_ context.Context, job throttle.JobID, task *asynq.Task) (stats.Requirements, bool) {
		rule, _ := c.Tasks.Rule(&expression.Job{Type: task.Type(), Queue: c.Sharded.QueueOf(job.Queue), ID: job.ID, Payload: task.Payload()})
		// If an expression fails, the rule is zero, because a worker archives the job without permits.
		return stats.Requirements{Needs: rule.Needs, FairnessKey: rule.FairnessKey, FairnessWeight: rule.FairnessWeight}, true
	}}
	return q
}
