package stats

import (
	"cmp"
	"context"
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

// Pending describes the pending jobs that have not requested permits yet.
type Pending struct {
	Groups []PendingGroup `json:"groups,omitempty"`
	// Queues is the number of pending jobs in each queue.
	Queues map[string]int `json:"queues,omitempty"`
	// Estimated reports whether Groups come from a sample of a queue.
	Estimated bool `json:"estimated,omitempty"`
	// WithoutRule is the number of jobs that are in no group, because their rule is unknown.
	WithoutRule int `json:"without_rule,omitempty"`
}

// PendingGroup is a number of pending jobs with the same requirements.
type PendingGroup struct {
	Queue string `json:"q"`
	Requirements
	Jobs float64 `json:"n"` // an estimate: it may have a fraction
}

// Requirements are the permits that a job will request. A job without Needs waits for none.
type Requirements struct {
	Needs          []throttle.Need `json:"w,omitempty"`
	FairnessKey    string          `json:"f,omitempty"`
	FairnessWeight int             `json:"fw,omitempty"`
}

// RuleFunc returns the requirements of a pending job, by the rules of the workers that serve its
// queue, or false if they are unknown. It returns when the context ends.
type RuleFunc func(ctx context.Context, job throttle.JobID, task *asynq.Task) (r Requirements, known bool)

const (
	// A queue with more than pendingSample jobs is sampled: ReadPending reads pendingSample of its
	// jobs, in pages of pendingPage jobs that are spread evenly over the queue.
	pendingSample = 200
	pendingPage   = 20
	// rulesTimeout is the longest time that the rules may take for one sample.
	rulesTimeout = 500 * time.Millisecond
	// maxGroups is the largest number of groups in a BacklogSample.
	maxGroups = 1000
)

// ReadPending reads or samples the pending jobs of an asynq Redis. A rule describes the jobs of the
// served queues; a nil rule describes none. ReadPending takes some round trips for each queue,
// however many jobs the queue has.
func ReadPending(ctx context.Context, rdb redis.UniversalClient, limiter *waitdb.DB, served []string, rule RuleFunc) (Pending, error) {
	db := asynqdb.New(rdb)
	sizes, err := PendingCounts(ctx, db)
	p := Pending{Queues: sizes}
	if err != nil {
		return p, err
	}
	rulesCtx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	for _, queue := range slices.Sorted(maps.Keys(sizes)) {
		jobs := sizes[queue]
		if !slices.Contains(served, queue) || rule == nil {
			p.WithoutRule += jobs
			continue
		}
		sample, err := readSample(ctx, db, limiter, queue, jobs)
		if err != nil {
			return p, err
		}
		var groups []PendingGroup
		withoutRule := 0.0
		for _, job := range sample {
			r, known := Requirements{}, false
			if rulesCtx.Err() == nil {
				r, known = rule(rulesCtx, throttle.JobID{Queue: queue, ID: job.id}, job.task)
			}
			if known {
				groups = append(groups, PendingGroup{queue, r, job.represents})
			} else {
				withoutRule += job.represents
			}
		}
		p.addSample(groups)
		p.WithoutRule += int(withoutRule + 0.5)
		p.Estimated = p.Estimated || jobs > pendingSample
	}
	return p, nil
}

// PendingCounts returns the number of pending jobs in each queue.
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

// SampledPending returns the pending jobs of a backlog sample, for callers without rules. If a queue
// has fewer jobs now, its groups shrink in proportion. With a nil sample no rule is known.
func SampledPending(ctx context.Context, rdb redis.UniversalClient, sample *BacklogSample) (Pending, error) {
	sizes, err := PendingCounts(ctx, asynqdb.New(rdb))
	if err != nil || sample == nil {
		p := Pending{Queues: sizes}
		for _, jobs := range sizes {
			p.WithoutRule += jobs
		}
		return p, err
	}
	p := sample.Pending
	p.Groups = slices.Clone(p.Groups)
	for i, g := range p.Groups {
		if then, now := p.Queues[g.Queue], sizes[g.Queue]; now < then {
			p.Groups[i].Jobs, p.Estimated = g.Jobs*float64(now)/float64(then), true
		}
	}
	return p, nil
}

// sampledJob is a pending job that represents a number of jobs.
type sampledJob struct {
	id         string
	task       *asynq.Task
	represents float64
}

// readSample reads pages of a queue of that many jobs, in three round trips. A page represents all
// jobs up to the next page. It leaves out jobs that have requested permits already, and jobs that
// are gone or that asynq will reject. The front of the queue is the end of asynq's list.
func readSample(ctx context.Context, db asynqdb.DB, limiter *waitdb.DB, queue string, jobs int) (sample []sampledJob, err error) {
	pages := min((jobs+pendingPage-1)/pendingPage, pendingSample/pendingPage)
	lists := make([]*redis.StringSliceCmd, pages)
	if _, err := db.Redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range pages {
			from, to := jobs*i/pages, jobs*(i+1)/pages
			lists[i] = pipe.LRange(ctx, asynqdb.Key(queue, asynqdb.Pending), int64(-min(to, from+pendingPage)), int64(-from-1))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	var ids, fields []string
	var represents []float64
	for i, list := range lists {
		page := list.Val()
		slices.Reverse(page)
		for _, id := range page {
			ids, fields = append(ids, id), append(fields, queue+"\n"+id)
			represents = append(represents, float64(jobs*(i+1)/pages-jobs*i/pages)/float64(len(page)))
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	messages, err := db.Messages(ctx, queue, ids...)
	if err != nil {
		return nil, err
	}
	rdb, prefix := limiter.Scope()
	waiting, err := rdb.HMGet(ctx, prefix+"jobs", fields...).Result()
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		message, err := asynqdb.ParseMessage([]byte(messages[i]))
		if waiting[i] == nil && messages[i] != "" && err == nil {
			sample = append(sample, sampledJob{id, message.Task(), represents[i]})
		}
	}
	return sample, nil
}

// addSample adds the sampled jobs of one queue, each with the number of jobs that it represents. If
// only one sampled job uses a key, the represented jobs are assumed to have such keys of their own:
// they are added with the meters that the sampled jobs share.
func (p *Pending) addSample(sample []PendingGroup) {
	uses := map[throttle.Need]int{}
	meter := func(n throttle.Need) throttle.Need { return throttle.Need{Limit: n.Limit, Key: n.Key} }
	for _, job := range sample {
		for _, n := range job.Needs {
			uses[meter(n)]++
		}
	}
	index := map[string]int{}
	add := func(g PendingGroup, needs []throttle.Need, jobs float64) {
		g.Needs, g.Jobs = needs, jobs
		name := fmt.Sprintf("%q %d %q", g.FairnessKey, g.FairnessWeight, fmt.Sprint(needs))
		if i, exists := index[name]; exists {
			p.Groups[i].Jobs += jobs
			return
		}
		index[name] = len(p.Groups)
		p.Groups = append(p.Groups, g)
	}
	for _, job := range sample {
		shared := slices.DeleteFunc(slices.Clone(job.Needs), func(n throttle.Need) bool { return n.Key != "" && uses[meter(n)] == 1 })
		if job.Jobs <= 1 || len(shared) == len(job.Needs) {
			add(job, job.Needs, job.Jobs)
			continue
		}
		add(job, job.Needs, 1)
		add(job, shared, job.Jobs-1)
	}
}

// truncate keeps the largest groups, and counts the jobs of the remaining groups as WithoutRule.
func (p *Pending) truncate() {
	slices.SortStableFunc(p.Groups, func(a, b PendingGroup) int { return cmp.Compare(b.Jobs, a.Jobs) })
	for _, g := range p.Groups[min(maxGroups, len(p.Groups)):] {
		p.WithoutRule += int(g.Jobs + 0.5)
	}
	p.Groups = p.Groups[:min(maxGroups, len(p.Groups))]
}

// addTo adds the jobs to a forecast, behind all waiting jobs. It leaves out jobs with invalid needs,
// which will be archived. It rounds the running sum, so that the sum of the groups stays right.
func (p Pending) addTo(opts *forecast.Options) {
	opts.WithoutRule, opts.Estimated = p.WithoutRule, p.Estimated
	sum, rounded := 0.0, 0
	for _, g := range p.Groups {
		sum += g.Jobs
		jobs := int(sum+0.5) - rounded
		rounded += jobs
		if len(g.Needs) > 0 && jobs > 0 {
			_ = opts.Pending(waitdb.Job{JobID: throttle.JobID{Queue: g.Queue}, Fair: g.FairnessKey, Weight: g.FairnessWeight}, jobs, g.Needs...)
		}
	}
}
