package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

var (
	aliveScript  = script.New("stats/alive")
	recordScript = script.New("stats/record")
)

const (
	callTimeout   = 2 * time.Second // for each write, so that a slow Redis does not delay a shutdown
	writeInterval = time.Second
	streamLength  = 16 * time.Minute // largest age of a summary
	aliveInterval = 10 * time.Second
	lostAfter     = 3 * aliveInterval
	lostRetention = time.Hour // how long a lost process is listed
	maxProcesses  = 1000
	maxStuck      = 100             // most stuck jobs that a process reports
	meanWindow    = 5 * time.Minute // time over which ReadMeans takes the means
)

// Summary counts the decisions and the ended attempts of one process in about a second.
type Summary struct {
	ID     string                  `json:"-"` // of the entry in the stream of Redis
	At     time.Time               `json:"-"` // by Redis's clock
	Limits map[string]LimitSummary `json:"l,omitempty"`
	Queues map[string]QueueSummary `json:"q,omitempty"`
}

func newSummary() *Summary {
	return &Summary{Limits: map[string]LimitSummary{}, Queues: map[string]QueueSummary{}}
}

// LimitSummary counts the decisions of a limit, and the permits that allowed jobs took, less those
// that jobs gave back. If jobs gave back permits of an earlier summary, Permits can be negative.
type LimitSummary struct {
	Allowed int64 `json:"a,omitempty"`
	Denied  int64 `json:"d,omitempty"`
	Permits int64 `json:"p,omitempty"`
	Settled int64 `json:"s,omitempty"` // permits that jobs gave back because their calls cost less; negative if they cost more
}

// Add returns the sum of two summaries.
func (l LimitSummary) Add(other LimitSummary) LimitSummary {
	l.Allowed += other.Allowed
	l.Denied += other.Denied
	l.Permits += other.Permits
	l.Settled += other.Settled
	return l
}

// QueueSummary counts the ended attempts of a queue's jobs, without those that ended with PutBack.
type QueueSummary struct {
	Done  int64         `json:"d,omitempty"`
	Ended int64         `json:"e"`           // including Done
	Ran   time.Duration `json:"r,omitempty"` // sum of the durations of the attempts in Ended
}

// Task is a queue and a task type.
type Task struct{ Queue, Type string }

// AttemptEnd tells how an attempt to run a job ended.
type AttemptEnd int

// How attempts end.
const (
	Done       AttemptEnd = iota
	Failed                // the attempt failed, and the job runs again
	Archived              // the job failed for good
	Dropped               // deleted by its handler or its rule
	PutBack               // the job was denied and did not run
	RetryAfter            // its handler put the job back, which costs no retry
	endCount
)

var endNames = [endCount]string{"done", "failed", "archived", "dropped", "put_back", "retry_after"}

func (e AttemptEnd) String() string { return endNames[e] }

// AttemptCounts has the number of attempts by AttemptEnd.
type AttemptCounts [endCount]int64

// FailedAttempts returns the number of failed attempts, including those of jobs that run again.
func (c AttemptCounts) FailedAttempts() int64 { return c[Failed] + c[Archived] }

// Start begins to write to Redis. The returned function writes a last summary, removes the process
// from Redis, and ends the writes. No write begins after calls has ended.
func (r *Recorder) Start(calls context.Context) (stop func()) {
	if r.Disabled {
		return func() {}
	}
	ctx, cancel := context.WithCancel(calls)
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	return func() {
		cancel()
		running.Wait()
		if calls.Err() == nil {
			r.writeSummary()
			r.writeProcess("")
		}
	}
}

func (r *Recorder) run(ctx context.Context) {
	ticker := time.NewTicker(writeInterval)
	defer ticker.Stop()
	var nextAlive, nextSample time.Time
	for now := time.Now(); ; {
		if r.processChanged.Swap(false) || !now.Before(nextAlive) {
			nextAlive = now.Add(aliveInterval)
			if r.reportAlive() != StateRunning {
				nextAlive = now.Add(writeInterval)
			}
		}
		select {
		case <-ctx.Done():
			return
		case now = <-ticker.C:
		}
		r.writeSummary()
		if !now.Before(nextSample) {
			nextSample = now.Add(r.sampleBacklog(ctx))
		}
	}
}

// write calls do. If do fails, write adds 1 to FailedWrites.
func (r *Recorder) write(ctx context.Context, do func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if do(ctx) != nil {
		r.FailedWrites.Add(1)
	}
}

// writeSummary writes the counts since the last summary, if there are any. If the write fails,
// these counts are lost.
func (r *Recorder) writeSummary() {
	r.mu.Lock()
	s := r.unsent
	r.unsent = newSummary()
	r.mu.Unlock()
	if len(s.Limits)+len(s.Queues) == 0 {
		return
	}
	r.write(context.Background(), func(ctx context.Context) error {
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		return recordScript.Run(ctx, r.rdb, []string{r.prefix}, text, streamLength.Microseconds()).Err()
	})
}

// StreamID returns the smallest ID of a summary that Redis writes at this time.
func StreamID(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) + "-0" }

// ReadSummaries returns the summaries with a higher ID than since, the oldest first. If since is
// empty, it returns all summaries. It skips invalid entries.
func ReadSummaries(ctx context.Context, rdb redis.UniversalClient, scope, since string) ([]Summary, error) {
	const page = 1000
	from := "-"
	if since != "" {
		from = "(" + since
	}
	var all []Summary
	for {
		messages, err := rdb.XRangeN(ctx, script.Prefix(scope)+"stats", from, "+", page).Result()
		if err != nil {
			return all, err
		}
		for _, m := range messages {
			from = "(" + m.ID
			ms, _, _ := strings.Cut(m.ID, "-")
			written, _ := strconv.ParseInt(ms, 10, 64)
			s := Summary{ID: m.ID, At: time.UnixMilli(written)}
			text, _ := m.Values["s"].(string)
			if json.Unmarshal([]byte(text), &s) == nil {
				all = append(all, s)
			}
		}
		if len(messages) < page {
			return all, nil
		}
	}
}

// Means are what jobs needed in the last meanWindow.
type Means struct {
	Durations map[string]time.Duration // of the attempts, by queue; without queues in which no attempt ended
	// CostShares has the real cost of a limit's jobs, divided by the cost that they took before
	// their calls. Limits whose jobs settled nothing are left out.
	CostShares map[string]float64
}

// ReadMeans reads the Means of a scope.
func ReadMeans(ctx context.Context, rdb redis.UniversalClient, scope string) (Means, error) {
	m := Means{map[string]time.Duration{}, map[string]float64{}}
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return m, err
	}
	summaries, err := ReadSummaries(ctx, rdb, scope, StreamID(now.Add(-meanWindow)))
	if err != nil {
		return m, err
	}
	queues, limits := map[string]QueueSummary{}, map[string]LimitSummary{}
	for _, s := range summaries {
		for queue, q := range s.Queues {
			q.Ended, q.Ran = q.Ended+queues[queue].Ended, q.Ran+queues[queue].Ran
			queues[queue] = q
			m.Durations[queue] = max(time.Millisecond, q.Ran/time.Duration(max(1, q.Ended)))
		}
		for limit, l := range s.Limits {
			limits[limit] = limits[limit].Add(l)
		}
	}
	for limit, l := range limits {
		if l.Settled != 0 && l.Permits > 0 && l.Permits+l.Settled > 0 {
			m.CostShares[limit] = float64(l.Permits) / float64(l.Permits+l.Settled)
		}
	}
	return m, nil
}

// Process is a process that runs jobs of a scope.
type Process struct {
	ID          string    `json:"-"`
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	Version     string    `json:"version"`
	Config      string    `json:"config"` // name of the config file, and a checksum of its text
	Started     time.Time `json:"started"`
	Running     int64     `json:"running"`     // number of running jobs
	Concurrency int       `json:"concurrency"` // number of jobs that may run at once
	// LastSeen is by Redis's clock. A process is lost if it was not seen for 30 s and did not stop.
	LastSeen time.Time `json:"seen"`
	State    State     `json:"state"`
	// DrainOrder is the ID of the order that drains the process, or empty. State is newer.
	DrainOrder string     `json:"drain_order,omitempty"`
	Lost       bool       `json:"lost"`
	Stuck      []StuckJob `json:"stuck,omitempty"` // the longest first
}

// StuckJob is a job whose handler goes on although its context has ended.
type StuckJob struct {
	Type  string    `json:"type"`
	Queue string    `json:"queue"`
	ID    string    `json:"id"`
	Ended time.Time `json:"ended"` // when the context ended
}

// reportAlive writes the description of this process, and passes on whether an operator drains it.
func (r *Recorder) reportAlive() State {
	r.mu.Lock()
	p := r.self
	p.Concurrency = r.Concurrency
	for _, t := range r.tasks {
		p.Running += t.Running
	}
	p.Stuck = slices.SortedFunc(maps.Keys(r.stuck), func(a, b StuckJob) int { return a.Ended.Compare(b.Ended) })
	p.Stuck = p.Stuck[:min(len(p.Stuck), maxStuck)]
	r.mu.Unlock()
	if p.State = StateRunning; r.State != nil {
		p.State = r.State()
	}
	p.DrainOrder = r.drainOrder
	text, err := json.Marshal(p)
	if err != nil {
		return p.State
	}
	if order, known := r.writeProcess(string(text)); known && order != r.drainOrder && r.SetDrained != nil {
		wasDrained, isDrained := r.drainOrder != "", order != ""
		r.drainOrder = order
		if isDrained != wasDrained {
			r.SetDrained(isDrained)
		}
		r.ReportSoon()
	}
	return p.State
}

// ReportSoon makes the Recorder describe the process again within a second.
func (r *Recorder) ReportSoon() { r.processChanged.Store(true) }

// writeProcess writes the JSON description of this process, and returns the ID of the order that drains
// it. known is false if the write fails. An empty text removes the description.
func (r *Recorder) writeProcess(text string) (drainOrder string, known bool) {
	r.write(context.Background(), func(ctx context.Context) (err error) {
		drainOrder, err = aliveScript.Run(ctx, r.rdb, []string{r.prefix}, r.processID, text, lostRetention.Microseconds()).Text()
		known = err == nil
		return err
	})
	return drainOrder, known
}

// ReadProcesses returns the processes of a scope that are alive or were lost within the last hour,
// at most maxProcesses, sorted by host and start.
func ReadProcesses(ctx context.Context, rdb redis.UniversalClient, scope string) ([]Process, error) {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	seen, err := rdb.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: script.Prefix(scope) + "workers", Start: 0, Stop: maxProcesses - 1, Rev: true}).Result()
	if err != nil || len(seen) == 0 {
		return []Process{}, err
	}
	keys := make([]string, len(seen))
	for i, z := range seen {
		keys[i] = script.Prefix(scope) + "worker:" + z.Member.(string)
	}
	texts, err := rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, err
	}
	all := make([]Process, 0, len(texts))
	for i, text := range texts {
		p := Process{}
		if text, ok := text.(string); !ok || json.Unmarshal([]byte(text), &p) != nil {
			continue // the process has just ended
		}
		p.ID, p.LastSeen = seen[i].Member.(string), time.UnixMicro(int64(seen[i].Score))
		p.State = cmp.Or(p.State, StateRunning)
		if p.Lost = now.Sub(p.LastSeen) > lostAfter; p.Lost {
			p.State = StateLost
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}
