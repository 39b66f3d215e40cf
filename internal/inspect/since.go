package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/history"
)

// Past is what became of jobs in a time up to now.
type Past struct {
	At     time.Time `json:"at"`
	From   time.Time `json:"from"`
	Step   float64   `json:"step_s"`
	Slices []Slice   `json:"slices"` // the oldest first
}

// Slice is what became of jobs in a step of the time, which the last is in the midst of.
type Slice struct {
	From time.Time `json:"from"`
	Ends
	Allowed int64 `json:"allowed"` // by all limits, and denied
	Denied  int64 `json:"denied"`
	// How long half, and 99 of a hundred, of those that waited for permits had waited when
	// they ran; null where none did.
	WaitP50 *float64 `json:"wait_p50_s"`
	WaitP99 *float64 `json:"wait_p99_s"`

	Tasks  []TaskEnds `json:"tasks"`
	Limits []Decided  `json:"limits"`
}

// Ends is how attempts to run jobs ended.
type Ends struct {
	Done     int64 `json:"done"`
	Failed   int64 `json:"failed"`   // those archived as well
	Archived int64 `json:"archived"` // for good
}

// TaskEnds is how attempts of jobs of one queue and type ended.
type TaskEnds struct {
	Queue string `json:"queue"`
	Type  string `json:"type"`
	Ends
}

// Decided is what a limit let through and denied.
type Decided struct {
	Name    string `json:"name"`
	Allowed int64  `json:"allowed"`
	Denied  int64  `json:"denied"`
}

// steps are those that a time is told in: the first that makes few slices of it.
var steps = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// maxSlices is how many slices people read in one table.
const maxSlices = 30

// Since is what became of jobs in a time up to now, in some thirty slices at most.
func (q *Queues) Since(ctx context.Context, past time.Duration) (Past, error) {
	step := steps[len(steps)-1]
	for _, s := range slices.Backward(steps) {
		if past/s <= maxSlices {
			step = s
		}
	}
	now, err := q.rdb.Time(ctx).Result()
	if err != nil {
		return Past{}, err
	}
	found, err := history.Past(ctx, q.rdb, q.scope, now.Add(-past), now, step)
	if err != nil {
		return Past{}, err
	}
	p := Past{At: now, From: now.Add(-past), Step: step.Seconds()}
	for _, s := range found {
		p.Slices = append(p.Slices, newSlice(s))
	}
	return p, nil
}

func newSlice(s history.Slice) Slice {
	decided := s.Decided()
	slice := Slice{
		From: s.From, Ends: newEnds(s.Ends()), Allowed: decided.Allowed, Denied: decided.Denied,
		WaitP50: quantile(s.Waits, .5), WaitP99: quantile(s.Waits, .99), Tasks: []TaskEnds{}, Limits: []Decided{},
	}
	for task, counts := range s.Tasks {
		slice.Tasks = append(slice.Tasks, TaskEnds{task.Queue, task.Type, newEnds(counts)})
	}
	slices.SortFunc(slice.Tasks, func(a, b TaskEnds) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Type, b.Type))
	})
	for _, name := range slices.Sorted(maps.Keys(s.Limits)) {
		l := s.Limits[name]
		slice.Limits = append(slice.Limits, Decided{name, l.Allowed, l.Denied})
	}
	return slice
}

func newEnds(c history.Counts) Ends {
	return Ends{Done: c[history.Done], Failed: c[history.Failed] + c[history.Archived], Archived: c[history.Archived]}
}

func quantile(w history.Waits, share float64) *float64 {
	wait, known := w.Quantile(share)
	if !known {
		return nil
	}
	seconds := wait.Seconds()
	return &seconds
}
