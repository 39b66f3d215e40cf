package stats

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// Summary counts the decisions and jobs of one process since its previous summary, of about a
// second. It leaves out limits and tasks without any.
type Summary struct {
	ID      string                  `json:"-"` // of the entry in the stream
	At      time.Time               `json:"-"` // by Redis's clock
	Process string                  `json:"p"`
	Limits  map[string]LimitSummary `json:"l,omitempty"`
	Tasks   []TaskSummary           `json:"t,omitempty"`
}

// LimitSummary counts the decisions of a limit.
type LimitSummary struct {
	Allowed  int64   `json:"a,omitempty"`
	Denied   int64   `json:"d,omitempty"`
	Rejected int64   `json:"r,omitempty"` // impossible, expired, or the limit does not exist
	Permits  int64   `json:"p,omitempty"`
	Denial   *Denial `json:"x,omitempty"` // the last one
}

// Add returns the sum of two summaries, with the Denial of the first.
func (l LimitSummary) Add(other LimitSummary) LimitSummary {
	l.Allowed += other.Allowed
	l.Denied += other.Denied
	l.Rejected += other.Rejected
	l.Permits += other.Permits
	return l
}

// maxID is the number of bytes at which the ID of a Denial is cut.
const maxID = 200

// Denial is an example of a denied job.
type Denial struct {
	Queue      string        `json:"q"`
	ID         string        `json:"i"`
	Key        string        `json:"k,omitempty"`
	RetryAfter time.Duration `json:"r"`
	Unknown    bool          `json:"u,omitempty"` // RetryAfter is meaningless
}

// TaskSummary counts the ends of attempts of a task.
type TaskSummary struct {
	Task
	Ends Counts        `json:"e"`
	Ran  time.Duration `json:"b,omitempty"` // sum of the durations, without attempts that were put back
}

// Task is a queue and a task type. Jobs are counted by both.
type Task struct {
	Queue string `json:"q"`
	Type  string `json:"t"`
}

// End is the outcome of an attempt to run a job.
type End int

// The values of End.
const (
	Done       End = iota
	Failed         // runs again
	Archived       // failed for good
	Dropped        // deleted by its handler or its rule
	PutBack        // denied: it did not run
	RetryAfter     // put back by its handler, without spending an attempt
	endCount
)

var endNames = [endCount]string{"done", "failed", "archived", "dropped", "put_back", "retry_after"}

func (e End) String() string { return endNames[e] }

// Counts are numbers of attempts by End.
type Counts [endCount]int64

// FailedJobs returns the number of jobs that failed for good.
func (c Counts) FailedJobs() int64 { return c[Archived] }

// FailedAttempts returns the number of failed attempts, including those of jobs that run again.
func (c Counts) FailedAttempts() int64 { return c[Failed] + c[Archived] }

func (c Counts) sum() (n int64) {
	for _, count := range c {
		n += count
	}
	return n
}

// Other replaces names that cannot be labels, and names beyond the number that is counted by name.
const Other = "other"

// Label returns the name, or Other if it has control characters, invalid UTF-8 or more than 100
// bytes.
func Label(name string) string {
	if !isLabel(name) {
		return Other
	}
	return name
}

func isLabel(name string) bool {
	isControl := func(c rune) bool { return c < ' ' || c == 0x7f }
	return len(name) <= 100 && utf8.ValidString(name) && !strings.ContainsFunc(name, isControl)
}

// StreamID returns the smallest ID of a summary that Redis writes at a time of its clock.
func StreamID(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) + "-0" }

// ReadSummaries returns the summaries after the one with the ID since, oldest first; all of them
// if since is empty. It skips invalid entries.
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

// ReadTotals counts the ends of attempts of each task since the scope was created.
func ReadTotals(ctx context.Context, rdb redis.UniversalClient, scope string) (map[Task]Counts, error) {
	fields, err := rdb.HGetAll(ctx, script.Prefix(scope)+"totals").Result()
	if err != nil {
		return nil, err
	}
	totals := map[Task]Counts{}
	for field, text := range fields {
		n, err := strconv.ParseInt(text, 10, 64)
		parts := strings.Split(field, "\n")
		if err != nil || len(parts) != 3 {
			continue
		}
		if end := slices.Index(endNames[:], parts[2]); end >= 0 {
			task := Task{parts[0], parts[1]}
			counts := totals[task]
			counts[end] = n
			totals[task] = counts
		}
	}
	return totals, nil
}

// durationWindow is the time over which MeanDurations takes the mean.
const durationWindow = 5 * time.Minute

// MeanDurations returns the mean duration of the last attempts in each queue. It leaves out queues
// in which no attempt ended.
func MeanDurations(ctx context.Context, rdb redis.UniversalClient, scope string) (map[string]time.Duration, error) {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	summaries, err := ReadSummaries(ctx, rdb, scope, StreamID(now.Add(-durationWindow)))
	if err != nil {
		return nil, err
	}
	ran, ended := map[string]time.Duration{}, map[string]int64{}
	for _, s := range summaries {
		for _, t := range s.Tasks {
			ran[t.Queue] += t.Ran
			ended[t.Queue] += t.Ends.sum() - t.Ends[PutBack]
		}
	}
	mean := map[string]time.Duration{}
	for queue, n := range ended {
		if n > 0 {
			mean[queue] = max(time.Millisecond, ran[queue]/time.Duration(n))
		}
	}
	return mean, nil
}
