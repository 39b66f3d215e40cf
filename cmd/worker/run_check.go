package main

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/worker"
)

func check(ctx context.Context, conf *config.Config, stdio cli.IO) error {
	warning, err := worker.Check(ctx, conf)
	if err != nil {
		return err
	}
	if warning != "" {
		fmt.Fprintln(stdio.Err, "worker: "+warning)
	}
	_, err = fmt.Fprintln(stdio.Out, "the config is right")
	return err
}

// checked is what a worker would run, in JSON. Redis is empty for one within the
// worker.
type checked struct {
	Config      string                     `json:"config"`
	Redis       string                     `json:"redis"`
	Scope       string                     `json:"scope"`
	Queues      map[string]int             `json:"queues"`
	Concurrency int                        `json:"concurrency"`
	Limits      []definition               `json:"limits"`
	Tasks       map[string][]neededLimit   `json:"tasks"`
	Commands    map[string]string          `json:"commands"`
	Schedules   map[string]checkedSchedule `json:"schedules"`
	Warning     string                     `json:"warning,omitempty"`
}

// neededLimit is a limit that jobs of a task need, in JSON: key and cost as the
// config has them.
type neededLimit struct {
	Limit string `json:"limit"`
	Key   string `json:"key,omitempty"`
	Cost  string `json:"cost,omitempty"`
}

type checkedSchedule struct {
	Cron string `json:"cron"`
	Zone string `json:"zone"`
	Task string `json:"task"`
}

func checkJSON(ctx context.Context, g *cli.Globals, conf *config.Config, stdio cli.IO) error {
	warning, err := worker.Check(ctx, conf)
	if err != nil {
		return err
	}
	c := newChecked(g, conf)
	c.Warning = warning
	return cli.JSON(stdio.Out, c)
}

func newChecked(g *cli.Globals, conf *config.Config) checked {
	c := checked{
		Config: g.Path(), Scope: conf.Scope, Queues: conf.Queues, Concurrency: conf.Concurrency, Limits: []definition{},
		Tasks: map[string][]neededLimit{}, Commands: map[string]string{}, Schedules: map[string]checkedSchedule{},
	}
	if !conf.Redis.IsZero() {
		c.Redis = conf.Redis.String()
	}
	for _, l := range conf.Limits {
		c.Limits = append(c.Limits, newDefinition(l, nil, nil))
	}
	for name, task := range conf.Tasks {
		c.Tasks[name] = []neededLimit{}
		for _, n := range task.Limits {
			c.Tasks[name] = append(c.Tasks[name], neededLimit{n.Limit, n.Key.String(), n.Cost.String()})
		}
	}
	for name, command := range conf.Commands {
		c.Commands[name] = command.String()
	}
	for name, s := range conf.Schedules {
		c.Schedules[name] = checkedSchedule{s.Cron, zoneName(s.Zone), s.Task}
	}
	return c
}
