package config

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// Task has the limits and the other settings of the jobs of one type.
type Task struct {
	// Limits are the limits whose permits a job needs before it runs. The job takes all permits at
	// once, or waits and takes none.
	Limits []Need `yaml:"limits"`
	// BlockOn429 are the limits that an upstream blocks if it answers a job's call with 429. A limit
	// with a key is blocked only for the job's key. Nil means the limits with a key, or all limits
	// if none has a key.
	BlockOn429 []string `yaml:"block_on_429"`
	// RetryAfterScope selects the limits that are blocked until the upstream's Retry-After: the
	// limits whose key is the called host, or all limits. The zero value means `host`.
	RetryAfterScope RetryAfterScope `yaml:"retry_after_scope"`
	// RateLimitedIf says which responses are a rate limit, as 429 is, although their status does not
	// say so. The zero value means none.
	RateLimitedIf expression.ResponseIs `yaml:"rate_limited_if"`
	// RetryIf says which responses are failed attempts that are retried, although their status is
	// expected, or would archive the job. The zero value means none.
	RetryIf expression.ResponseIs `yaml:"retry_if"`
	// MaxWait is the longest time that a job waits for its permits. The zero value means as long
	// as it takes.
	MaxWait time.Duration `yaml:"max_wait"`
	// OnMaxWait is the action for a job whose max_wait or own deadline ends while the job waits. The
	// zero value means `archive`.
	OnMaxWait MaxWaitAction `yaml:"on_max_wait"`
	// OnNoLimit is the action for a job whose limit has been deleted, or is for other apps. The zero
	// value means `wait`: the job waits until the limit is defined.
	OnNoLimit scheduler.Action `yaml:"on_no_limit"`
	// Priority is a job's priority among jobs that wait for the same permits. The zero value means
	// `normal`.
	Priority expression.Priority `yaml:"priority"`
	// FairnessKey is the owner of the job, such as a tenant. If jobs of several fairness keys wait
	// for the same permits or for slots, the keys take turns, however many jobs each has. The zero
	// value means first in, first out.
	FairnessKey expression.Key `yaml:"fairness_key"`
	// FairnessWeight is the weight of the fairness key, at most 1000. A key of weight 3 gets three
	// turns for each turn of a key of weight 1. The zero value means `1`.
	FairnessWeight expression.Weight `yaml:"fairness_weight"`
	// MaxRetry is the number of retries of a failed job. The program that enqueues a job
	// applies it, so give enqueue the same file. A job's own max_retry takes precedence. Nil means asynq's, `25`.
	MaxRetry *int `yaml:"max_retry"`
	// Timeout is the longest time that one run can take. The program that enqueues a job
	// applies it, so give enqueue the same file. A job's own timeout takes precedence. The zero value means asynq's,
	// `30m`.
	Timeout time.Duration `yaml:"timeout"`
	// Retention is the time for which a finished job and its result are kept. The worker applies it
	// to each job without a retention of its own. The zero value means not at all.
	Retention time.Duration `yaml:"retention"`
	// Retry says how long a failed job waits before it runs again.
	Retry Retry `yaml:"retry"`
	// RetryPosition is the position of a failed job that waits for its permits again. The job keeps
	// its place, or goes to the end of its lane. The zero value means `keep`.
	RetryPosition scheduler.RetryPosition `yaml:"retry_position"`
	// Then are the jobs to enqueue when a job is done.
	Then []Then `yaml:"then"`
}

// Tasks are the types of jobs, by name.
type Tasks map[string]Task

// Need has the permits that a job takes of one limit.
type Need struct {
	// Limit is the name of the limit. Required. The name alone is short for a need with only a limit.
	Limit string `yaml:"limit" short:""`
	// Key is the key under which the limit counts the job. The zero value means one count for all
	// jobs.
	Key expression.Key `yaml:"key"`
	// Cost is the number of permits that the job takes. The zero value means `1`.
	Cost expression.Cost `yaml:"cost"`
	// Settle is the actual cost of a finished job. The zero value means its cost.
	Settle expression.Settle `yaml:"settle"`
}

// LosesResponses reports whether the responses of a type's jobs are lost when the jobs are done. An
// http:request loses its response if the task has neither retention nor then.
func (t Tasks) LosesResponses(typename string) bool {
	task := t[typename]
	return typename == tasks.TypeHTTPRequest && task.Retention == 0 && len(task.Then) == 0
}

// KeysOf returns the key expression of each need of a limit, in no order, or "" for a need without a
// key.
func (t Tasks) KeysOf(limit string) (keys []string) {
	for _, n := range t.needsOf(limit) {
		keys = append(keys, n.Key.String())
	}
	return keys
}

// needsOf returns the needs of all tasks that use a limit.
func (t Tasks) needsOf(limit string) (needs []Need) {
	for _, task := range t {
		for _, n := range task.Limits {
			if n.Limit == limit {
				needs = append(needs, n)
			}
		}
	}
	return needs
}

// NormalizeKey returns a key of a limit as the limit's tasks normalize it. If the tasks differ, it
// returns the key unchanged.
func (t Tasks) NormalizeKey(limit, key string) (string, error) {
	normal := ""
	for _, n := range t.needsOf(limit) {
		normalized, err := n.Key.NormalizeKey(key)
		if err != nil {
			return "", fmt.Errorf("key of limit %s: %w", limit, err)
		}
		if normal != "" && normalized != normal {
			return key, nil
		}
		normal = normalized
	}
	return cmp.Or(normal, key), nil
}

// Costs returns the actual costs of a finished job, by limit, of limits with a settle expression. If
// no limit has a settle expression, Costs returns nil and does not call result.
func (t Tasks) Costs(job *expression.Job, result func() ([]byte, error)) (costs map[string]int, err error) {
	done := &expression.Done{Job: *job, MustBeJSON: true}
	for _, n := range t[job.Type].Limits {
		if n.Settle.IsZero() {
			continue
		}
		if costs == nil {
			costs = map[string]int{}
			if done.Result, err = result(); err != nil {
				return nil, err
			}
		}
		if costs[n.Limit], err = n.Settle.Value(done); err != nil {
			return nil, err
		}
	}
	return costs, nil
}

// Rule returns the rule of a job, or the zero Rule if the config does not have the job's type. An
// error means that an expression fails. It would fail again at each retry.
func (t Tasks) Rule(job *expression.Job) (scheduler.Rule, error) {
	task, ok := t[job.Type]
	if !ok {
		return scheduler.Rule{}, nil
	}
	rule := scheduler.Rule{
		BlockOnRateLimit: task.blockedUntilRetryAfter(), MaxWait: task.MaxWait, OnMaxWait: scheduler.Action(task.OnMaxWait), OnNoLimit: task.OnNoLimit, Retention: task.Retention,
		Retry: task.Retry.Policy(), RetryPosition: task.RetryPosition,
	}
	for _, n := range task.Limits {
		key, wrongKey := n.Key.Value(job)
		cost, wrongCost := n.Cost.Value(job)
		if err := cmp.Or(wrongKey, wrongCost); err != nil {
			return scheduler.Rule{}, err
		}
		rule.Needs = append(rule.Needs, throttle.Need{Limit: n.Limit, Key: key, Cost: cost})
	}
	var wrongPriority, wrongKey, wrongWeight error
	rule.Priority, wrongPriority = task.Priority.Value(job)
	rule.FairnessKey, wrongKey = task.FairnessKey.Value(job)
	rule.FairnessWeight, wrongWeight = task.FairnessWeight.Value(job)
	if err := cmp.Or(wrongPriority, wrongKey, wrongWeight); err != nil {
		return scheduler.Rule{}, err
	}
	return rule, nil
}

func (d *decoder) checkTasks(all Tasks, limits []throttle.Limit, types []string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		path := join("tasks", name)
		t := all[name]
		d.checkReference(path, "task type", name, types)
		d.checkNeeds(path+".limits", t.Limits, limits)
		for i, limit := range t.BlockOn429 {
			var own []string
			for _, n := range t.Limits {
				own = append(own, n.Limit)
			}
			d.checkReference(indexed(path+".block_on_429", i), "limit of this task", limit, own)
		}
		d.checkResponseIs(path+".rate_limited_if", name, t.RateLimitedIf)
		d.checkResponseIs(path+".retry_if", name, t.RetryIf)
		d.want(t.MaxWait > 0, path+".max_wait", "0s: want a time such as 10m; leave it out to wait as long as it takes")
		d.want(d.has(path+".fairness_key"), path+".fairness_weight", "there is no fairness_key: want the key that has this weight, such as fairness_key: payload.tenant")
		d.checkMaxRetry(path+".max_retry", t.MaxRetry)
		d.checkSeconds(path+".timeout", t.Timeout)
		d.checkSeconds(path+".retention", t.Retention)
		d.checkRetry(path+".retry", t.Retry)
		d.checkThen(path+".then", t.Then, types)
	}
}

// checkResponseIs reports a condition that is the same for every response, or a task without responses.
func (d *decoder) checkResponseIs(path, typename string, is expression.ResponseIs) {
	_, constant := is.Constant()
	d.want(!constant, path, "%s is the same for every response: want a condition on status, header(…), body or json", is)
	d.want(slices.Contains(tasks.Types(), typename), path, "%s has no response: want it in %s", typename, strings.Join(tasks.Types(), " or "))
}

// Judge returns what a response to a job's call means. An error means that an expression fails, which
// counts as false.
func (t Tasks) Judge(job *expression.Job, r tasks.Response) (verdict tasks.Verdict, err error) {
	task, response := t[job.Type], &expression.Response{Job: *job, Status: r.Status, Header: r.Header, Body: r.Body}
	limited, wrongLimited := task.RateLimitedIf.Value(response)
	retry, wrongRetry := task.RetryIf.Value(response)
	switch {
	case limited:
		verdict = tasks.VerdictRateLimited
	case retry:
		verdict = tasks.VerdictRetry
	}
	return verdict, cmp.Or(wrongLimited, wrongRetry)
}

// checkNeeds reports unknown and duplicate limits, and impossible costs.
func (d *decoder) checkNeeds(path string, needs []Need, limits []throttle.Limit) {
	names := namesOf(limits)
	seen := map[[2]string]bool{}
	uses := map[string]int{}
	for _, n := range needs {
		uses[n.Limit]++
	}
	for i, n := range needs {
		at := indexed(path, i)
		if n.Limit == "" {
			d.errorf(at+".limit", "missing: want the name of a limit")
			continue
		}
		d.checkReference(at+".limit", "limit", n.Limit, names)
		if uses[n.Limit] > 1 && !n.Settle.IsZero() {
			d.errorf(at+".settle", "the task needs limit %s %d times, and a job settles one cost for each limit: want one need of this limit", n.Limit, uses[n.Limit])
		}
		meter := [2]string{n.Limit, n.Key.String()}
		if seen[meter] {
			d.errorf(at+".limit", "limit %s is there twice with the same key: keep one, with the costs added up", n.Limit)
		}
		seen[meter] = seen[meter] || !d.broken(at+".key")
		cost, constant := n.Cost.Constant()
		if i := slices.Index(names, n.Limit); i >= 0 && constant && limits[i].MaxCost() > 0 && cost > limits[i].MaxCost() {
			d.errorf(at+".cost", "%d is above the capacity %d of limit %s: no job could ever run", cost, limits[i].MaxCost(), n.Limit)
		}
	}
}

// RetryAfterScope selects the limits that an upstream blocks by its Retry-After, or by the reset of
// an exhausted quota. The limit's max_block bounds the time of the block.
type RetryAfterScope string

// The values of Task.RetryAfterScope. If BlockOn429 names limits, these are the limits of both scopes.
const (
	// ScopeHost selects the limits whose key is the called host, because a response says nothing
	// about other hosts. If a job has no such limit, Retry-After is ignored.
	ScopeHost RetryAfterScope = "host"
	// ScopeAll selects all limits that a 429 blocks.
	ScopeAll RetryAfterScope = "all"
)

// UnmarshalText reads host or all.
func (s *RetryAfterScope) UnmarshalText(text []byte) error {
	switch *s = RetryAfterScope(text); *s {
	case ScopeHost, ScopeAll:
		return nil
	}
	return fmt.Errorf("%q: want host or all", text)
}

// MaxWaitAction is an Action that can end a wait: every Action but scheduler.ActionWait.
type MaxWaitAction scheduler.Action

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *MaxWaitAction) UnmarshalText(text []byte) error {
	switch scheduler.Action(text) {
	case scheduler.ActionArchive, scheduler.ActionDrop, scheduler.ActionRun:
		*a = MaxWaitAction(text)
		return nil
	}
	return fmt.Errorf("%q: want one of archive, drop, run", text)
}

// blockedUntilRetryAfter returns the limits that a 429 blocks until its Retry-After. If the result is
// nil, the rule has no such limits: a 429 blocks the limits with a key, or all limits if none has one.
func (t Task) blockedUntilRetryAfter() []string {
	if t.BlockOn429 != nil {
		return t.BlockOn429
	}
	var all, keyed, byHost []string
	for _, n := range t.Limits {
		all = append(all, n.Limit)
		if !n.Key.IsZero() {
			keyed = append(keyed, n.Limit)
		}
		if n.Key.ByHost() {
			byHost = append(byHost, n.Limit)
		}
	}
	switch {
	case t.RetryAfterScope != ScopeAll:
		return byHost
	case keyed != nil:
		return keyed
	}
	return all
}

// JobOf returns the variables of expressions about a task. ctx is the context of a run of the task.
func JobOf(ctx context.Context, task *asynq.Task) *expression.Job {
	_, id, _ := scheduler.GetJob(ctx)
	return &expression.Job{Type: task.Type(), Queue: scheduler.GetQueue(ctx), ID: id, Payload: task.Payload()}
}
