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

// Pending is what the jobs will want that are in their queues and have not asked for permits
// yet. A job that was granted permits and is on its way is none of them.
type Pending struct {
	Groups []PendingGroup `json:"groups,omitempty"`
	// Queues is how many jobs were pending in each queue.
	Queues map[string]int `json:"queues,omitempty"`
	// About is whether Groups were estimated from a sample.
	Estimated bool `json:"about,omitempty"`
	// Uncounted is how many jobs are in no group, since it is not known what they will want.
	Uncounted int `json:"uncounted,omitempty"`

	slow bool // rules did not answer in time
}

// PendingGroup is pending jobs of one type that will want the same.
type PendingGroup struct {
	Task
	Requirements
	Jobs int `json:"n"`
}

// Wants is what a job will ask for. Without Needs it waits for no permits.
type Requirements struct {
	Needs          []throttle.Need `json:"w,omitempty"`
	FairnessKey    string          `json:"f,omitempty"`
	FairnessWeight int             `json:"fw,omitempty"`
}

// RuleOf says what a pending job will ask for, by the rules of the workers that take it. It
// reports false if that is not known. It returns when the context ends.
type RuleFunc func(ctx context.Context, job throttle.JobID, task *asynq.Task) (wants Requirements, known bool)

// How many pending jobs of a queue are looked at: all of a few, and of more some pages that are
// spread over the queue.
const (
	pendingSample = 200
	pendingPage   = 20
	// rulesTime bounds how long the rules of a sample may take, and rulesRest is how long a
	// process asks none after rules that took longer.
	rulesTime = 500 * time.Millisecond
	rulesRest = 5 * time.Minute
	// maxGroups bounds what a survey keeps.
	maxGroups = 1000
)

// ReadPending looks at the pending jobs of an asynq Redis by the rules of the workers of some
// queues. It takes some round trips for each queue with jobs, however many they are.
func ReadPending(ctx context.Context, rdb redis.UniversalClient, limiter *waitdb.DB, served []string, rule RuleFunc) (Pending, error) {
	found := Pending{Queues: map[string]int{}}
	db := asynqdb.New(rdb)
	sizes, err := PendingCounts(ctx, db)
	if err != nil {
		return found, err
	}
	ruling, cancel := context.WithTimeout(ctx, rulesTime)
	defer cancel()
	for _, queue := range slices.Sorted(maps.Keys(sizes)) {
		jobs := sizes[queue]
		found.Queues[queue] = jobs
		if jobs == 0 {
			continue
		}
		if !slices.Contains(served, queue) || rule == nil {
			found.Uncounted += jobs
			continue
		}
		s := pendingSampler{db: db, limiter: limiter, queue: queue, jobs: jobs, rule: func(id string, task *asynq.Task) (Requirements, bool) {
			if ruling.Err() != nil {
				return Requirements{}, false
			}
			return rule(ruling, throttle.JobID{Queue: queue, ID: id}, task)
		}}
		if err := s.read(ctx); err != nil {
			return found, err
		}
		s.addTo(&found)
	}
	found.slow = errors.Is(ruling.Err(), context.DeadlineExceeded)
	return found, nil
}

// PendingSizes is how many jobs are pending in each queue.
func PendingCounts(ctx context.Context, db asynqdb.DB) (map[string]int, error) {
	names, err := db.Queues(ctx)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	pipe := db.Redis.Pipeline()
	counts := make([]*redis.IntCmd, len(names))
	for i, name := range names {
		counts[i] = pipe.LLen(ctx, asynqdb.Key(name, asynqdb.Pending))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	sizes := map[string]int{}
	for i, name := range names {
		sizes[name] = int(counts[i].Val())
	}
	return sizes, nil
}

// SurveyedPending is what the last survey found, for those who have no rules: of a queue that
// has fewer jobs by now, as many. Without a survey all are Uncounted.
func SampledPending(ctx context.Context, rdb redis.UniversalClient, survey *BacklogSample) (Pending, error) {
	sizes, err := PendingCounts(ctx, asynqdb.New(rdb))
	if err != nil || survey == nil {
		p := Pending{Queues: sizes}
		for _, jobs := range sizes {
			p.Uncounted += jobs
		}
		return p, err
	}
	found := survey.Pending
	found.Groups = slices.Clone(found.Groups)
	for i, g := range found.Groups {
		if then, now := found.Queues[g.Queue], sizes[g.Queue]; now < then {
			found.Groups[i].Jobs, found.Estimated = g.Jobs*now/then, true
		}
	}
	return found, nil
}

// pendingSampler looks at some jobs of one queue.
type pendingSampler struct {
	db      asynqdb.DB
	limiter *waitdb.DB
	queue   string
	jobs    int // in all
	rule    func(id string, task *asynq.Task) (Requirements, bool)

	found     []sampledJob
	uncounted float64
}

// sampledJob is a job that was looked at, and how many it stands for.
type sampledJob struct {
	task string
	Requirements
	jobs float64
}

// read looks at pages of the queue, those in front first, in three round trips. The jobs of a
// page stand for all ranks up to the next page. Rank 0 is in front, at the end of asynq's list.
func (s *pendingSampler) read(ctx context.Context) error {
	pages := (s.jobs + pendingPage - 1) / pendingPage
	if s.jobs > pendingSample {
		pages = pendingSample / pendingPage
	}
	pipe := s.db.Redis.Pipeline()
	found := make([]*redis.StringSliceCmd, pages)
	for i := range pages {
		from, to := s.jobs*i/pages, s.jobs*(i+1)/pages
		found[i] = pipe.LRange(ctx, asynqdb.Key(s.queue, asynqdb.Pending), int64(-min(to, from+pendingPage)), int64(-from-1))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	var ids []string
	var each []float64 // how many jobs each stands for
	for i := range pages {
		page := found[i].Val()
		slices.Reverse(page)
		ids = append(ids, page...)
		each = append(each, slices.Repeat([]float64{float64(s.jobs*(i+1)/pages-s.jobs*i/pages) / float64(len(page))}, len(page))...)
	}
	if len(ids) == 0 { // all were taken meanwhile
		return nil
	}
	messages, err := s.db.Messages(ctx, s.queue, ids...)
	if err != nil {
		return err
	}
	asked, err := s.asked(ctx, ids)
	if err != nil {
		return err
	}
	for i, id := range ids {
		task, err := asynqdb.ParseTask([]byte(messages[i]))
		if asked[i] || messages[i] == "" || err != nil {
			continue // it waits or was granted permits already, is gone, or is asynq's to judge
		}
		if wants, known := s.rule(id, task); known {
			s.found = append(s.found, sampledJob{task.Type(), wants, each[i]})
		} else {
			s.uncounted += each[i]
		}
	}
	return nil
}

// asked reports of each job whether the limiter knows it.
func (s *pendingSampler) asked(ctx context.Context, ids []string) ([]bool, error) {
	rdb, prefix := s.limiter.Scope()
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = s.queue + "\n" + id
	}
	records, err := rdb.HMGet(ctx, prefix+"jobs", names...).Result()
	known := make([]bool, len(ids))
	for i, record := range records {
		known[i] = record != nil
	}
	return known, err
}

// addTo adds as many jobs as these stand for. A key that was seen once is taken to be that
// job's own: the others that it stands for are taken to have keys of their own as well, and
// so wait only for what the keys share.
func (s *pendingSampler) addTo(found *Pending) {
	seen := map[throttle.Need]int{}
	meter := func(n throttle.Need) throttle.Need { return throttle.Need{Limit: n.Limit, Key: n.Key} }
	for _, job := range s.found {
		for _, n := range job.Needs {
			seen[meter(n)]++
		}
	}
	at := map[string]int{} // index of a group
	sums := []float64{}
	first := len(found.Groups)
	add := func(job sampledJob, needs []throttle.Need, jobs float64) {
		name := fmt.Sprintf("%q %q %d %q", job.task, job.FairnessKey, job.FairnessWeight, fmt.Sprint(needs))
		i, there := at[name]
		if !there {
			i = len(sums)
			at[name], sums = i, append(sums, 0)
			found.Groups = append(found.Groups, PendingGroup{Task{s.queue, job.task}, Requirements{needs, job.FairnessKey, job.FairnessWeight}, 0})
		}
		sums[i] += jobs
	}
	for _, job := range s.found {
		shared := slices.DeleteFunc(slices.Clone(job.Needs), func(n throttle.Need) bool { return n.Key != "" && seen[meter(n)] == 1 })
		if job.jobs <= 1 || len(shared) == len(job.Needs) {
			add(job, job.Needs, job.jobs)
			continue
		}
		add(job, job.Needs, 1)
		add(job, shared, job.jobs-1)
	}
	// Rounded so that their sum is right.
	sum, whole := 0.0, 0
	for i, jobs := range sums {
		sum += jobs
		found.Groups[first+i].Jobs = int(sum+0.5) - whole
		whole = int(sum + 0.5)
	}
	found.Uncounted += int(s.uncounted + 0.5)
	found.Estimated = found.Estimated || s.jobs > pendingSample
}

// bound leaves the largest groups, and counts the rest as not counted.
func (p *Pending) bound() {
	if len(p.Groups) <= maxGroups {
		return
	}
	slices.SortStableFunc(p.Groups, func(a, b PendingGroup) int { return b.Jobs - a.Jobs })
	for _, g := range p.Groups[maxGroups:] {
		p.Uncounted += g.Jobs
	}
	p.Groups = p.Groups[:maxGroups]
}

// addTo has a forecast count the jobs, behind all that wait. Those whose needs are no valid
// ones wait for nothing: they will be archived.
func (p Pending) addTo(opts *forecast.Options) {
	opts.Uncounted, opts.Sampled = p.Uncounted, p.Estimated
	for _, g := range p.Groups {
		if len(g.Needs) > 0 && g.Jobs > 0 {
			_ = opts.Pending(g.job(), g.Jobs, g.Needs...)
		}
	}
}

func (g PendingGroup) job() waitdb.Job {
	return waitdb.Job{JobID: throttle.JobID{Queue: g.Queue}, Fair: g.FairnessKey, Weight: g.FairnessWeight}
}
