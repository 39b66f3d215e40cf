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

// Summary is what one process did in one second, or since its last summary.
// Those limits and tasks of which there is nothing to say are not in it.
type Summary struct {
	// ID is the summary's place in the stream, and At when it was written, by
	// Redis's clock.
	ID string    `json:"-"`
	At time.Time `json:"-"`
	// Process is a random name of the one that wrote it.
	Process string                  `json:"p"`
	Limits  map[string]LimitSummary `json:"l,omitempty"`
	Tasks   []TaskSummary           `json:"t,omitempty"`
}

// Limited is what was decided of a limit.
type LimitSummary struct {
	Allowed int64 `json:"a,omitempty"`
	Denied  int64 `json:"d,omitempty"`
	// Refused counts what can never be, or not in time, or has no limit.
	Rejected int64 `json:"r,omitempty"`
	Permits  int64 `json:"p,omitempty"`
	// Denial is the last of those denied.
	Denial *Denial `json:"x,omitempty"`
}

// maxID is at how many bytes the ID of a Denial is cut.
const maxID = 200

// Denial is a job that was denied, as an example.
type Denial struct {
	Queue      string        `json:"q"`
	ID         string        `json:"i"`
	Key        string        `json:"k,omitempty"`
	RetryAfter time.Duration `json:"r"`
	Unknown    bool          `json:"u,omitempty"` // nobody can tell for how long
}

// TaskNews is how jobs of a task ended, and how many ran at that moment.
type TaskSummary struct {
	Task
	Ends    Counts `json:"e"`
	Running int64  `json:"b,omitempty"`
}

// Task is what jobs are counted by.
type Task struct {
	Queue string `json:"q"`
	Type  string `json:"t"`
}

// End is how an attempt to run a job ended.
type End int

// The ends.
const (
	Done       End = iota
	Failed         // to be tried again
	Archived       // kept in asynq's archive
	Dropped        // deleted, as its handler or its rule said
	PutBack        // without having run: it waits for permits, or for the limiter
	RetryAfter     // by its handler, which spends no attempt
	ends
)

var endTexts = [ends]string{"done", "failed", "archived", "dropped", "put_back", "retry_after"}

// String is the end as labels and totals have it.
func (e End) String() string { return endTexts[e] }

// Counts is how many jobs ended in which way, by End.
type Counts [ends]int64

// FailedJobs is how many jobs failed for good: each is counted once.
func (c Counts) FailedJobs() int64 { return c[Archived] }

// FailedAttempts is how many attempts failed: those that will be repeated, and the last
// ones of jobs that failed for good.
func (c Counts) FailedAttempts() int64 { return c[Failed] + c[Archived] }

func (c Counts) sum() (n int64) {
	for _, of := range c {
		n += of
	}
	return n
}

// Plus adds what was decided of another limit.
func (l LimitSummary) Add(other LimitSummary) LimitSummary {
	l.Allowed += other.Allowed
	l.Denied += other.Denied
	l.Rejected += other.Rejected
	l.Permits += other.Permits
	return l
}

func (l LimitSummary) sum() int64 { return l.Allowed + l.Denied + l.Rejected }

// Other counts what has a name that is one too many, or no name for a label: with
// control characters, wrong UTF-8 or more than 100 bytes.
const Other = "other"

// Label is a name as a label: itself, or Other.
func Label(name string) string {
	if !isLabel(name) {
		return Other
	}
	return name
}

func isLabel(name string) bool {
	control := func(c rune) bool { return c < ' ' || c == 0x7f }
	return len(name) <= 100 && utf8.ValidString(name) && !strings.ContainsFunc(name, control)
}

// StreamID is the ID of the first summary that may be written at a moment of
// Redis's clock.
func StreamID(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) + "-0" }

// idTime is when a summary was written; the zero time for what is no ID.
func idTime(id string) time.Time {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

const page = 1000

// Read returns the summaries after the one whose ID is since, oldest first: all
// for "", and for a moment StreamID of it. A quarter of an hour of them is there,
// one a second of each process. What cannot be read as one is left out.
func ReadSummaries(ctx context.Context, rdb redis.UniversalClient, scope, since string) ([]Summary, error) {
	from := "-"
	if since != "" {
		from = "(" + since
	}
	var all []Summary
	for {
		messages, err := rdb.XRangeN(ctx, script.Prefix(scope)+"history", from, "+", page).Result()
		if err != nil {
			return all, err
		}
		for _, m := range messages {
			from = "(" + m.ID
			s := Summary{ID: m.ID, At: idTime(m.ID)}
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

// Totals is how many jobs of each task have ended in which way since the scope
// began.
func ReadTotals(ctx context.Context, rdb redis.UniversalClient, scope string) (map[Task]Counts, error) {
	fields, err := rdb.HGetAll(ctx, script.Prefix(scope)+"totals").Result()
	if err != nil {
		return nil, err
	}
	totals := map[Task]Counts{}
	for field, text := range fields {
		task, end, ok := parseField(field)
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil {
			continue
		}
		counts := totals[task]
		counts[end] = n
		totals[task] = counts
	}
	return totals, nil
}

func parseField(field string) (t Task, end End, ok bool) {
	parts := strings.Split(field, "\n")
	if len(parts) != 3 {
		return t, 0, false
	}
	i := slices.Index(endTexts[:], parts[2])
	return Task{parts[0], parts[1]}, End(i), i >= 0
}
