package stats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// Pending is what pending jobs will need that have not asked for permits yet.
type Pending struct {
	Groups []PendingGroup `json:"groups,omitempty"`
	// Queues is how many jobs were pending in each queue.
	Queues map[string]int `json:"queues,omitempty"`
	// Estimated is whether Groups come from a sample.
	Estimated bool `json:"about,omitempty"`
	// Uncounted is how many jobs are in no group, because their needs are unknown.
	Uncounted int `json:"uncounted,omitempty"`

	slowRules bool // rules did not return in time
}

// PendingGroup is a number of pending jobs of one type with the same requirements.
type PendingGroup struct {
	Task
	Requirements
	Jobs int `json:"n"`
}

// Requirements are what a job will ask for. Without Needs it waits for no permits.
type Requirements struct {
	Needs          []throttle.Need `json:"w,omitempty"`
	FairnessKey    string          `json:"f,omitempty"`
	FairnessWeight int             `json:"fw,omitempty"`
}

// RuleFunc returns what a pending job will ask for, by the rules of the workers that take it, or
// false if that is unknown. It returns when the context ends.
type RuleFunc func(ctx context.Context, job throttle.JobID, task *asynq.Task) (r Requirements, known bool)

const (
	// Of a queue with more than pendingSample jobs, that many are sampled, in pages that are
	// spread evenly over the queue.
	pendingSample = 200
	pendingPage   = 20
	// rulesTimeout bounds the time of the rules for one sample. After slower rules a process
	// asks no rules for slowRulesPause.
	rulesTimeout   = 500 * time.Millisecond
	slowRulesPause = 5 * time.Minute
	// maxGroups bounds the groups in a BacklogSample.
	maxGroups = 1000
)

// ReadPending samples the pending jobs of an asynq Redis, with the rules of the workers of the
// served queues. It takes some round trips for each queue, however many jobs it has.
func ReadPending(ctx context.Context, rdb redis.UniversalClient, limiter *waitdb.DB, served []string, rule RuleFunc) (Pending, error) {
	found := Pending{Queues: map[string]int{}}
	db := asynqdb.New(rdb)
	sizes, err := PendingCounts(ctx, db)
	if err != nil {
		return found, err
	}
	rulesCtx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	for _, queue := range slices.Sorted(maps.Keys(sizes)) {
		jobs := sizes[queue]
		found.Queues[queue] = jobs
		if !slices.Contains(served, queue) || rule == nil {
			found.Uncounted += jobs
			continue
		}
		sample, uncounted, err := samplePending(ctx, db, limiter, queue, jobs, func(id string, task *asynq.Task) (Requirements, bool) {
			if rulesCtx.Err() != nil {
				return Requirements{}, false
			}
			return rule(rulesCtx, throttle.JobID{Queue: queue, ID: id}, task)
		})
		if err != nil {
			return found, err
		}
		found.addSample(queue, sample)
		found.Uncounted += int(uncounted + 0.5)
		found.Estimated = found.Estimated || jobs > pendingSample
	}
	found.slowRules = errors.Is(rulesCtx.Err(), context.DeadlineExceeded)
	return found, nil
}

// PendingCounts returns how many jobs are pending in each queue.
func PendingCounts(ctx context.Context, db asynqdb.DB) (map[string]int, error) {
	names, err := db.Queues(ctx)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	counts := make([]*redis.IntCmd, len(names))
	if _, err := db.Redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, name := range names {
			counts[i] = pipe.LLen(ctx, asynqdb.Key(name, asynqdb.Pending))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	sizes := map[string]int{}
	for i, name := range names {
		sizes[name] = int(counts[i].Val())
	}
	return sizes, nil
}

// SampledPending returns the pending jobs of a backlog sample, for callers without rules, scaled
// down for queues that have fewer jobs now. With a nil sample all jobs are Uncounted.
func SampledPending(ctx context.Context, rdb redis.UniversalClient, sample *BacklogSample) (Pending, error) {
	sizes, err := PendingCounts(ctx, asynqdb.New(rdb))
	if err != nil || sample == nil {
		p := Pending{Queues: sizes}
		for _, jobs := range sizes {
			p.Uncounted += jobs
		}
		return p, err
	}
	found := sample.Pending
	found.Groups = slices.Clone(found.Groups)
	for i, g := range found.Groups {
		if then, now := found.Queues[g.Queue], sizes[g.Queue]; now < then {
			found.Groups[i].Jobs, found.Estimated = g.Jobs*now/then, true
		}
	}
	return found, nil
}

// sampledJob is a job that stands for a number of jobs.
type sampledJob struct {
	taskType string
	Requirements
	jobs float64
}

// samplePending reads pages of a queue, in three round trips. The jobs of a page stand for all
// jobs up to the next page. The front of the queue is the end of asynq's list.
func samplePending(ctx context.Context, db asynqdb.DB, limiter *waitdb.DB, queue string, jobs int, rule func(id string, task *asynq.Task) (Requirements, bool)) (sample []sampledJob, uncounted float64, err error) {
	pages := (jobs + pendingPage - 1) / pendingPage
	if jobs > pendingSample {
		pages = pendingSample / pendingPage
	}
	found := make([]*redis.StringSliceCmd, pages)
	if _, err := db.Redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range pages {
			from, to := jobs*i/pages, jobs*(i+1)/pages
			found[i] = pipe.LRange(ctx, asynqdb.Key(queue, asynqdb.Pending), int64(-min(to, from+pendingPage)), int64(-from-1))
		}
		return nil
	}); err != nil {
		return nil, 0, err
	}
	var ids []string
	var weights []float64
	for i := range pages {
		page := found[i].Val()
		slices.Reverse(page)
		ids = append(ids, page...)
		weight := float64(jobs*(i+1)/pages-jobs*i/pages) / float64(len(page))
		weights = append(weights, slices.Repeat([]float64{weight}, len(page))...)
	}
	if len(ids) == 0 {
		return nil, 0, nil
	}
	messages, err := db.Messages(ctx, queue, ids...)
	if err != nil {
		return nil, 0, err
	}
	lrdb, prefix := limiter.Scope()
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = queue + "\n" + id
	}
	records, err := lrdb.HMGet(ctx, prefix+"jobs", names...).Result()
	if err != nil {
		return nil, 0, err
	}
	for i, id := range ids {
		message, err := asynqdb.ParseMessage([]byte(messages[i]))
		if records[i] != nil || messages[i] == "" || err != nil {
			continue // it has asked for permits, is gone, or asynq will reject it
		}
		if r, known := rule(id, message.Task()); known {
			sample = append(sample, sampledJob{message.Type, r, weights[i]})
		} else {
			uncounted += weights[i]
		}
	}
	return sample, uncounted, nil
}

// addSample adds groups of as many jobs as the sampled ones stand for. A key that occurs once is
// taken to be that job's own: the jobs that it stands for are taken to have keys of their own,
// too, and so to wait only for the meters that the sampled jobs share.
func (p *Pending) addSample(queue string, sample []sampledJob) {
	seen := map[throttle.Need]int{}
	meter := func(n throttle.Need) throttle.Need { return throttle.Need{Limit: n.Limit, Key: n.Key} }
	for _, job := range sample {
		for _, n := range job.Needs {
			seen[meter(n)]++
		}
	}
	index, sums, first := map[string]int{}, []float64{}, len(p.Groups)
	add := func(job sampledJob, needs []throttle.Need, jobs float64) {
		name := fmt.Sprintf("%q %q %d %q", job.taskType, job.FairnessKey, job.FairnessWeight, fmt.Sprint(needs))
		i, exists := index[name]
		if !exists {
			i = len(sums)
			index[name], sums = i, append(sums, 0)
			p.Groups = append(p.Groups, PendingGroup{Task{queue, job.taskType}, Requirements{needs, job.FairnessKey, job.FairnessWeight}, 0})
		}
		sums[i] += jobs
	}
	for _, job := range sample {
		shared := slices.DeleteFunc(slices.Clone(job.Needs), func(n throttle.Need) bool { return n.Key != "" && seen[meter(n)] == 1 })
		if job.jobs <= 1 || len(shared) == len(job.Needs) {
			add(job, job.Needs, job.jobs)
			continue
		}
		add(job, job.Needs, 1)
		add(job, shared, job.jobs-1)
	}
	// Round so that the sum of the groups is right.
	sum, rounded := 0.0, 0
	for i, jobs := range sums {
		sum += jobs
		p.Groups[first+i].Jobs = int(sum+0.5) - rounded
		rounded = int(sum + 0.5)
	}
}

// truncate keeps the largest groups, and counts the jobs of the rest as Uncounted.
func (p *Pending) truncate() {
	if len(p.Groups) <= maxGroups {
		return
	}
	slices.SortStableFunc(p.Groups, func(a, b PendingGroup) int { return b.Jobs - a.Jobs })
	for _, g := range p.Groups[maxGroups:] {
		p.Uncounted += g.Jobs
	}
	p.Groups = p.Groups[:maxGroups]
}

// addTo adds the jobs to a forecast, behind all waiting jobs. Jobs with invalid needs will be
// archived, so it leaves them out.
func (p Pending) addTo(opts *forecast.Options) {
	opts.Uncounted, opts.Sampled = p.Uncounted, p.Estimated
	for _, g := range p.Groups {
		if len(g.Needs) > 0 && g.Jobs > 0 {
			_ = opts.Pending(waitdb.Job{JobID: throttle.JobID{Queue: g.Queue}, Fair: g.FairnessKey, Weight: g.FairnessWeight}, g.Jobs, g.Needs...)
		}
	}
}
