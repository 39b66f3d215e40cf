package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

const (
	// The dispatcher takes the next sample of the backlog after sampleInterval, or after sampleRest
	// times the duration of the last sample if that is longer.
	sampleInterval = 5 * time.Second
	sampleRest     = 50
	sampleLifetime = time.Minute
	maxTopKeys     = 10 // maximum length of LimitDemand.TopKeys
	// Of a queue with more than pendingSample jobs, ReadPending reads pendingSample jobs, in pages
	// of pendingPage jobs that are spread evenly over the queue.
	pendingSample = 200
	pendingPage   = 20
	// maxSampleBytes is the most bytes of the messages of a sample. A sample of larger jobs is smaller.
	maxSampleBytes = 1 << 20
	// rulesTimeout is the longest time that the rules may take for one sample.
	rulesTimeout = 500 * time.Millisecond
)

// BacklogSample is what the dispatcher last read of the backlog.
type BacklogSample struct {
	At     time.Time              `json:"at"` // by Redis's clock
	Limits map[string]LimitDemand `json:"limits"`
	// DrainedAt has, by limit, the estimated start of the last job that needs the limit. An unknown
	// start is zero. A limit that no job needs is missing.
	DrainedAt map[string]time.Time `json:"drained_at,omitempty"`
	Pending   Pending              `json:"pending"`
}

// LimitDemand is the demand for one limit.
type LimitDemand struct {
	Waiting        int       `json:"waiting"`              // jobs that wait longer for this limit than for their other limits
	WaitingPermits int       `json:"waiting_permits"`      // what the jobs of Waiting need of this limit
	Total          int       `json:"total"`                // WaitingPermits plus what jobs need that wait longer for another limit
	KeyCount       int       `json:"key_count"`            // number of keys that jobs need
	TopKeys        []string  `json:"top_keys"`             // at most maxTopKeys of these keys, the highest demand first
	Since          time.Time `json:"since,omitzero"`       // when the oldest job began to wait here; zero if unknown
	HoldsJobs      bool      `json:"holds_jobs,omitempty"` // jobs that have their other permits wait for this limit now
}

// WaitedFor returns the time for which the oldest job has waited at the limit.
func (d LimitDemand) WaitedFor(now time.Time) time.Duration {
	if d.Since.IsZero() {
		return 0
	}
	return max(0, now.Sub(d.Since))
}

// Pending describes the pending jobs that have not requested permits yet.
type Pending struct {
	Groups      []PendingGroup `json:"groups,omitempty"`
	Queues      map[string]int `json:"queues,omitempty"`       // number of all pending jobs, by queue
	Estimated   bool           `json:"estimated,omitempty"`    // Groups come from a sample of a queue
	WithoutRule int            `json:"without_rule,omitempty"` // jobs in no group, because their rule is unknown
}

// PendingGroup is a number of pending jobs with the same requirements.
type PendingGroup struct {
	Queue string `json:"q"`
	Requirements
	Jobs float64 `json:"n"` // an estimate: it may have a fraction
}

// Requirements are the permits that a job will request. A job without Needs does not wait.
type Requirements struct {
	Needs          []throttle.Need `json:"w,omitempty"`
	FairnessKey    string          `json:"f,omitempty"`
	FairnessWeight int             `json:"fw,omitempty"`
}

// RuleFunc returns the requirements of a pending job by the rules of the workers, or false if the
// requirements are unknown. It must return when the context ends.
type RuleFunc func(ctx context.Context, job throttle.JobID, task *asynq.Task) (r Requirements, known bool)

// ReadDemand returns the demand for each meter, the highest first, and for each limit. A job counts
// as waiting at its bottleneck in the forecast. If the forecast has not read all lanes, Waiting and
// WaitingPermits are estimates: the other lanes count like the lanes that were read.
func ReadDemand(ctx context.Context, limiter *waitdb.DB, f *forecast.Forecast) ([]waitdb.Demand, map[string]LimitDemand, error) {
	meters, err := limiter.Demands(ctx)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(meters, func(a, b waitdb.Demand) int {
		return cmp.Or(cmp.Compare(b.Permits, a.Permits), strings.Compare(a.Key, b.Key))
	})
	limits := map[string]LimitDemand{}
	for _, m := range meters {
		l := limits[m.Limit]
		l.Total += m.Permits
		if l.KeyCount++; l.KeyCount <= maxTopKeys {
			l.TopKeys = append(l.TopKeys, m.Key)
		}
		limits[m.Limit] = l
	}
	for name, b := range backlogsByLimit(f) {
		l := limits[name]
		if f.Partial && b.Read > 0 {
			more := max(1, float64(l.Total)/float64(b.Read))
			b.Jobs, b.Permits = int64(float64(b.Jobs)*more), int64(float64(b.Permits)*more)
		}
		l.Waiting, l.WaitingPermits, l.Since, l.HoldsJobs = int(b.Jobs), int(b.Permits), b.Since, b.HoldsJobs
		limits[name] = l
	}
	return meters, limits, nil
}

// backlogsByLimit adds up the backlogs of the keys of each limit.
func backlogsByLimit(f *forecast.Forecast) map[string]forecast.Backlog {
	sums := map[string]forecast.Backlog{}
	for _, b := range f.Backlogs() {
		sum := sums[b.Limit]
		sum.Jobs += b.Jobs
		sum.Permits += b.Permits
		sum.Read += b.Read
		sum.HoldsJobs = sum.HoldsJobs || b.HoldsJobs
		if sum.Since.IsZero() || !b.Since.IsZero() && b.Since.Before(sum.Since) {
			sum.Since = b.Since
		}
		sums[b.Limit] = sum
	}
	return sums
}

// sampleBacklog samples the backlog if this process is the dispatcher, and returns the time until
// the next call.
func (r *Recorder) sampleBacklog(ctx context.Context) (next time.Duration) {
	started := time.Now()
	if r.IsLeader.Load() {
		r.write(ctx, r.writeBacklogSample)
	}
	return max(sampleInterval, sampleRest*time.Since(started))
}

func (r *Recorder) writeBacklogSample(ctx context.Context) error {
	rdb, scope := r.Redis()
	limiter := waitdb.New(throttle.New(rdb, throttle.Options{Scope: scope}))
	pending, err := ReadPending(ctx, r.Queues, limiter, r.ServedQueues, r.RuleFor)
	if err != nil {
		return err
	}
	f, err := Forecast(ctx, limiter, r.Queues, pending, forecast.Options{})
	if err != nil {
		return err
	}
	_, demand, err := ReadDemand(ctx, limiter, f)
	if err != nil {
		return err
	}
	s := BacklogSample{At: f.At, Limits: demand, DrainedAt: map[string]time.Time{}, Pending: pending}
	for name, last := range f.Limits() {
		s.DrainedAt[name] = time.Time{}
		if last.Known {
			s.DrainedAt[name] = f.At.Add(last.StartsIn)
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return rdb.Set(ctx, r.prefix+"backlog", text, sampleLifetime).Err()
}

// ReadBacklogSample returns the sample of the last minute, or nil if there is none.
func ReadBacklogSample(ctx context.Context, rdb redis.UniversalClient, scope string) (*BacklogSample, error) {
	text, err := rdb.Get(ctx, script.Prefix(scope)+"backlog").Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &BacklogSample{}
	return s, json.Unmarshal(text, s)
}

// Forecast returns the limiter's forecast, with the pending jobs added. The argument queues is the
// client of asynq's Redis. Forecast sets the options Duration, CostShare and Stopped from data in Redis.
func Forecast(ctx context.Context, limiter *waitdb.DB, queues redis.UniversalClient, pending Pending, opts forecast.Options) (*forecast.Forecast, error) {
	pending.addTo(&opts)
	rdb, prefix := limiter.Scope()
	scope := script.Scope(prefix)
	var errs []error
	paused := map[string]bool{}
	opts.Stopped = func(queue string) bool {
		if _, known := paused[queue]; !known {
			n, err := queues.Exists(ctx, asynqdb.Key(queue, asynqdb.Paused)).Result()
			paused[queue] = n > 0
			errs = append(errs, err)
		}
		return paused[queue]
	}
	means := sync.OnceValue(func() Means {
		m, err := ReadMeans(ctx, rdb, scope)
		errs = append(errs, err)
		return m
	})
	opts.Duration = func(queue string) time.Duration { return means().Durations[queue] }
	opts.CostShare = func(limit string) float64 { return means().CostShares[limit] }
	f, err := forecast.Make(ctx, limiter, opts)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return f, nil
}

// ReadPending reads or samples the pending jobs of an asynq Redis, in three round trips for each
// queue. The function rule gives the requirements of jobs of the served queues. If rule is nil, all
// requirements are unknown, and limiter is not used.
func ReadPending(ctx context.Context, rdb redis.UniversalClient, limiter *waitdb.DB, served []string, rule RuleFunc) (Pending, error) {
	db := asynqdb.New(rdb)
	sizes, err := pendingCounts(ctx, db)
	p := Pending{Queues: sizes}
	if err != nil {
		return p, err
	}
	rulesCtx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	for _, queue := range slices.Sorted(maps.Keys(sizes)) {
		if !slices.Contains(served, queue) || rule == nil {
			p.WithoutRule += sizes[queue]
			continue
		}
		read, jobs, tasks, err := readSample(ctx, db, limiter, queue, sizes[queue])
		if err != nil {
			return p, err
		}
		jobsPerSampled := float64(sizes[queue]) / float64(max(1, read))
		var sample []Requirements
		for i := 0; i < len(jobs) && rulesCtx.Err() == nil; i++ {
			if r, known := rule(rulesCtx, jobs[i], tasks[i]); known {
				sample = append(sample, r)
			}
		}
		p.WithoutRule += int(math.Round(jobsPerSampled * float64(len(jobs)-len(sample))))
		p.addSample(queue, sample, jobsPerSampled)
	}
	return p, nil
}

// readSample reads some of the n pending jobs of a queue. read is the number of these jobs. The
// lists jobs and tasks leave out a job that has requested permits, that is gone, or whose message
// is invalid. The front of the queue is the end of asynq's list.
func readSample(ctx context.Context, db asynqdb.DB, limiter *waitdb.DB, queue string, n int) (read int, jobs []throttle.JobID, tasks []*asynq.Task, err error) {
	pages := min((n+pendingPage-1)/pendingPage, pendingSample/pendingPage)
	lists, err := db.Redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := range pages {
			from, to := n*i/pages, n*(i+1)/pages
			pipe.LRange(ctx, asynqdb.Key(queue, asynqdb.Pending), int64(-min(to, from+pendingPage)), int64(-from-1))
		}
		return nil
	})
	var ids []string
	var all []throttle.JobID
	for _, list := range lists {
		for _, id := range slices.Backward(list.(*redis.StringSliceCmd).Val()) {
			ids, all = append(ids, id), append(all, throttle.JobID{Queue: queue, ID: id})
		}
	}
	if err != nil || len(ids) == 0 {
		return 0, nil, nil, err
	}
	messages, err := db.FirstFields(ctx, queue, asynqdb.FieldMessage, maxSampleBytes, ids...)
	if err != nil {
		return 0, nil, nil, err
	}
	all = all[:len(messages)]
	known, err := limiter.Known(ctx, all)
	if err != nil {
		return 0, nil, nil, err
	}
	for i, text := range messages {
		if message, err := asynqdb.ParseMessage([]byte(text)); !known[i] && text != "" && err == nil {
			jobs, tasks = append(jobs, all[i]), append(tasks, message.Task)
		}
	}
	return len(all), jobs, tasks, nil
}

// addSample adds the sampled jobs of a queue. If a sampled job stands for several jobs, addSample
// leaves out needs for a key that occurs only once in the sample. The jobs that were not read
// probably need other keys.
func (p *Pending) addSample(queue string, sample []Requirements, jobsPerSampled float64) {
	uses := map[throttle.Need]int{}
	meter := func(n throttle.Need) throttle.Need { return throttle.Need{Limit: n.Limit, Key: n.Key} }
	for _, r := range sample {
		for _, n := range r.Needs {
			uses[meter(n)]++
		}
	}
	p.Estimated = p.Estimated || jobsPerSampled > 1
	groups := map[string]int{}
	for _, r := range sample {
		if jobsPerSampled > 1 {
			r.Needs = slices.DeleteFunc(slices.Clone(r.Needs), func(n throttle.Need) bool { return n.Key != "" && uses[meter(n)] == 1 })
		}
		name := fmt.Sprintf("%#v", r)
		i, exists := groups[name]
		if !exists {
			i, groups[name] = len(p.Groups), len(p.Groups)
			p.Groups = append(p.Groups, PendingGroup{Queue: queue, Requirements: r})
		}
		p.Groups[i].Jobs += jobsPerSampled
	}
}

// addTo adds the jobs to a forecast, behind all waiting jobs. It leaves out jobs with invalid
// needs, because they will be archived. It rounds the running sum of jobs, so that rounding errors
// do not add up.
func (p Pending) addTo(opts *forecast.Options) {
	opts.WithoutRule, opts.Estimated = p.WithoutRule, p.Estimated
	sum, rounded := 0.0, 0
	for _, g := range p.Groups {
		sum += g.Jobs
		jobs := int(math.Round(sum)) - rounded
		rounded += jobs
		if len(g.Needs) > 0 && jobs > 0 {
			_ = opts.Pending(waitdb.Job{JobID: throttle.JobID{Queue: g.Queue}, Fair: g.FairnessKey, Weight: g.FairnessWeight}, jobs, g.Needs...)
		}
	}
}

func pendingCounts(ctx context.Context, db asynqdb.DB) (map[string]int, error) {
	names, err := db.Queues(ctx)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	lengths, err := db.Redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, name := range names {
			pipe.LLen(ctx, asynqdb.Key(name, asynqdb.Pending))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sizes := map[string]int{}
	for i, name := range names {
		sizes[name] = int(lengths[i].(*redis.IntCmd).Val())
	}
	return sizes, nil
}

// SampledPending returns the pending jobs of a backlog sample, for callers without rules. If a
// queue has fewer jobs now, its groups shrink in proportion. If the sample is nil, the requirements
// of all jobs are unknown.
func SampledPending(ctx context.Context, rdb redis.UniversalClient, sample *BacklogSample) (Pending, error) {
	if sample == nil {
		return ReadPending(ctx, rdb, nil, nil, nil)
	}
	sizes, err := pendingCounts(ctx, asynqdb.New(rdb))
	p := sample.Pending
	p.Groups = slices.Clone(p.Groups)
	for i, g := range p.Groups {
		if then, now := p.Queues[g.Queue], sizes[g.Queue]; now < then {
			p.Groups[i].Jobs, p.Estimated = g.Jobs*float64(now)/float64(then), true
		}
	}
	return p, err
}
