// Package config reads headgate.yaml, and connects to the Redis that it names. Its types
// are plain data that other packages' values are made from; a file with errors gives all of
// them at once, each with its place and with what to write instead.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/throttle"
)

// Config is what a worker is told: where Redis is, what it runs, and which
// limits hold for what.
type Config struct {
	// Redis is where jobs and limits live. The zero value means a Redis within the worker.
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
	Tasks map[string]Task `yaml:"tasks"`
	// HTTP says what the calls of jobs may do.
	HTTP HTTP `yaml:"http"`
	// Page says who may see the live page, and what of it.
	Page Page `yaml:"page"`
	// Crawl says how crawls show themselves, and what they keep.
	Crawl Crawl `yaml:"crawl"`
	// Commands are what exec jobs may run.
	Commands map[string]Command `yaml:"commands"`
	// Schedules enqueue jobs by the clock.
	Schedules map[string]Schedule `yaml:"schedules"`
	// Absent says why this is only the Default: "there is no headgate.yaml",
	// or that it is empty. Nothing is limited then, which nobody should have
	// to find out by the calls that go out.
	Absent string
}

// document is the file: a Config, except for what other packages' types hold.
type document struct {
	// Limits are what holds for all workers of the scope.
	Limits map[string]limit `yaml:"limits"`
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
	return Parse(path, data)
}

// Parse reads a config; the name is the file's, for errors, which are of type
// Errors.
func Parse(name string, data []byte) (*Config, error) {
	d := newDecoder(name)
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // Windows editors write it
	doc := document{Config: *Default()}
	d.decode(data, &doc)

	d.checkRedis(&doc.Config)
	d.checkWorker(&doc.Config)
	doc.Config.Limits = d.limits(doc.Limits)
	d.checkCommands(doc.Commands)
	d.checkTasks(&doc.Config)
	d.checkHTTP(doc.HTTP)
	d.checkPage(doc.Page)
	d.checkCrawl(doc.Crawl)
	d.checkSchedules(&doc.Config)
	if len(d.errs) > 0 {
		slices.SortStableFunc(d.errs, func(a, b *Error) int { // into the file's order
			return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
		})
		return nil, d.errs
	}
	if len(d.at) == 0 {
		doc.Config.Absent = name + " is empty"
	}
	return &doc.Config, nil
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,100}$`)

// CheckName reports what is wrong with the name of an app, a scope or a queue.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("%q: want 1 to 100 letters, digits, or _ . : -", name)
	}
	return nil
}

func (d *decoder) checkName(path, name string) {
	if err := CheckName(name); err != nil {
		d.errorf(path, "%v", err)
	}
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
		d.want(c.Queues[queue] <= turns.MostTurns, path, "%d: want a weight of at most %d", c.Queues[queue], turns.MostTurns)
	}
}

func (d *decoder) checkReference(path, what, name string, names []string) {
	if !slices.Contains(names, name) {
		_, hint := didYouMean(name, names)
		d.errorf(path, "no %s %q: %s", what, name, hint)
	}
}
