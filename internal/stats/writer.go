package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"runtime/debug"
	"slices"
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
	writeInterval = time.Second
	// streamLength is the age of the oldest summary in the stream.
	streamLength = 16 * time.Minute
	// maxTotals is the largest number of fields of the totals. Further names are counted as Other.
	maxTotals = 5000

	aliveInterval = 10 * time.Second
	lostAfter     = 3 * aliveInterval
	// lostRetention is the time for which a lost process is listed.
	lostRetention = time.Hour
	maxProcesses  = 1000
)

// Start begins to write to Redis. The returned function stops it, after a last write.
func (r *Recorder) Start() (stop func()) {
	if r.disabled {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

func (r *Recorder) run(ctx context.Context) {
	write, sample, alive := time.NewTicker(writeInterval), time.NewTimer(writeInterval), time.NewTicker(aliveInterval)
	defer write.Stop()
	defer sample.Stop()
	defer alive.Stop()
	r.reportAlive(ctx)
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.Background(), 2*callTimeout)
			defer cancel()
			r.write(last)
			r.report(last, "")
			return
		case <-alive.C:
			r.reportAlive(ctx)
		case <-write.C:
			r.write(context.Background())
		case <-sample.C:
			sample.Reset(r.sampleBacklog(ctx))
		}
	}
}

// write writes a summary of the time since the last one, if anything happened. If that fails, the
// next call writes the same summary first.
func (r *Recorder) write(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		if r.unsent == nil {
			if r.unsent = r.summarize(); r.unsent == nil {
				return
			}
			r.written++
		}
		if err := r.send(ctx, r.unsent); err != nil {
			r.FailedWrites.Add(1)
			return
		}
		r.unsent = nil
	}
}

// summarize returns the counts since the last summary, or nil if there are none.
func (r *Recorder) summarize() *Summary {
	s := &Summary{Process: r.process, Limits: map[string]LimitSummary{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, c := range r.limits {
		if c.unsent != (LimitSummary{}) {
			s.Limits[name], c.unsent = c.unsent, LimitSummary{}
		}
	}
	for task, c := range r.tasks {
		if c.unsent.Ends != (Counts{}) {
			s.Tasks, c.unsent = append(s.Tasks, c.unsent), TaskSummary{Task: task}
		}
	}
	if len(s.Limits) == 0 && len(s.Tasks) == 0 {
		return nil
	}
	return s
}

func (r *Recorder) send(ctx context.Context, s *Summary) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	args := []any{text, streamLength.Microseconds(), maxTotals, Other, r.process, r.written}
	for _, t := range s.Tasks {
		for end, n := range t.Ends {
			if n > 0 {
				args = append(args, strings.Join([]string{t.Queue, t.Type, End(end).String()}, "\n"), n)
			}
		}
	}
	return recordScript.Run(ctx, r.rdb, []string{r.prefix}, args...).Err()
}

// Process is a process that runs jobs of a scope.
type Process struct {
	ID          string    `json:"-"`
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	Version     string    `json:"version"`
	Config      string    `json:"config"` // the config's file and a checksum of its text
	Started     time.Time `json:"started"`
	Running     int64     `json:"running"`     // number of running jobs
	Concurrency int       `json:"concurrency"` // largest number of running jobs
	// LastSeen is by Redis's clock. A process is lost if it was not seen for 30 s and did not stop.
	LastSeen time.Time `json:"seen"`
	Lost     bool      `json:"lost"`
}

// version returns headgate's version in this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/headgate/headgate" {
			return cmp.Or(m.Version, "(devel)")
		}
	}
	return cmp.Or(info.Main.Version, "(devel)")
}

func (r *Recorder) reportAlive(ctx context.Context) {
	p := r.self
	p.Concurrency = r.Concurrency
	if config := r.config.Load(); config != nil {
		p.Config = *config
	}
	for _, t := range r.Tasks() {
		p.Running += t.Running
	}
	if text, err := json.Marshal(p); err == nil {
		r.report(ctx, string(text))
	}
}

// report writes the description of this process. An empty text removes it.
func (r *Recorder) report(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := aliveScript.Run(ctx, r.rdb, []string{r.prefix}, r.process, text, lostRetention.Microseconds()).Err(); err != nil {
		r.FailedWrites.Add(1)
	}
}

// ReadProcesses returns the processes of a scope that are alive or were lost within the last hour,
// by host and start.
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
			continue
		}
		p.ID, p.LastSeen = seen[i].Member.(string), time.UnixMicro(int64(seen[i].Score))
		p.Lost = now.Sub(p.LastSeen) > lostAfter
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}
