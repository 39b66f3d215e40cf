package history

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/lua"
	"github.com/redis/go-redis/v9"
)

// How far back the past reaches, and in which parts it is kept: minutes of each hour in
// one hash, hours of each day in another. lua/history/record.lua has the same.
const (
	day = 24 * time.Hour
	// Reach is how far back the past knows hours.
	Reach = 30 * day
)

// What is counted of a limit.
const (
	allowedField = "allowed"
	deniedField  = "denied"
)

// Past is what became of jobs in a time up to a moment.
type Past struct {
	At     time.Time `json:"at"`
	From   time.Time `json:"from"`
	Step   float64   `json:"step_s"`
	Slices []Slice   `json:"slices"` // the oldest first
	Whole  Slice     `json:"-"`      // all of them
}

// Slice is what all processes of a scope did in a step of the time, which the last is in
// the midst of.
type Slice struct {
	From time.Time `json:"from"`
	Ended
	Decided // by all limits together: a job that needs two counts twice
	// How long half, and 99 of a hundred, of those that waited for permits had waited when
	// they ran, in seconds; nil where none did.
	WaitP50 *float64 `json:"wait_p50_s"`
	WaitP99 *float64 `json:"wait_p99_s"`

	Tasks  []TaskEnded    `json:"tasks"`  // by queue and type
	Limits []LimitDecided `json:"limits"` // by name

	waits waitCounts
}

// Ended is how jobs ended.
type Ended struct {
	Done           int64 `json:"done"`
	Failed         int64 `json:"failed"`          // jobs that failed for good
	FailedAttempts int64 `json:"failed_attempts"` // of these jobs, and of those that run again
}

// TaskEnded is how jobs of one queue and type ended.
type TaskEnded struct {
	Queue string `json:"queue"`
	Type  string `json:"type"`
	Ended
}

// Decided is how many calls were allowed and denied.
type Decided struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
}

// LimitDecided is what a limit let through and denied.
type LimitDecided struct {
	Name string `json:"name"`
	Decided
}

func newSlice(from time.Time) Slice {
	return Slice{From: from, Tasks: []TaskEnded{}, Limits: []LimitDecided{}, waits: make(waitCounts, len(waitFields))}
}

// add counts what a field says. What is none of ours is left out.
func (s *Slice) add(field string, n int64) {
	if task, end, ok := parseField(field); ok {
		of := entry(&s.Tasks, TaskEnded{Queue: task.Queue, Type: task.Type}, func(a, b TaskEnded) int {
			return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Type, b.Type))
		})
		var counts Counts
		counts[end] = n
		for _, sum := range []*Ended{&s.Ended, &of.Ended} {
			sum.Done += counts[Done]
			sum.Failed += counts.FailedJobs()
			sum.FailedAttempts += counts.FailedAttempts()
		}
		return
	}
	switch name, what, _ := strings.Cut(field, "\n"); what {
	case allowedField, deniedField:
		of := entry(&s.Limits, LimitDecided{Name: name}, func(a, b LimitDecided) int { return strings.Compare(a.Name, b.Name) })
		for _, sum := range []*Decided{&s.Decided, &of.Decided} {
			if what == allowedField {
				sum.Allowed += n
			} else {
				sum.Denied += n
			}
		}
	case "":
		if i := slices.Index(waitFields, name); i >= 0 {
			s.waits[i] += n
		}
	}
}

// entry is what a sorted list has of the same place, which is there from then on.
func entry[E any](list *[]E, as E, order func(a, b E) int) *E {
	i, found := slices.BinarySearchFunc(*list, as, order)
	if !found {
		*list = slices.Insert(*list, i, as)
	}
	return &(*list)[i]
}

// waitCounts is how many jobs waited for how long, of those that waited before they ran: up
// to each of the bounds, and longer than all.
type waitCounts []int64

// quantile is how many seconds a share of the jobs waited at most, as near as the bounds
// tell: in between it goes straight. It is nil where none waited. Of those that waited longer
// than all bounds it is the last bound.
func (w waitCounts) quantile(share float64) *float64 {
	all := int64(0)
	for _, n := range w {
		all += n
	}
	if all == 0 {
		return nil
	}
	rank, below, at := share*float64(all), 0.0, 0.0
	for i, bound := range waits {
		n := float64(w[i])
		if n > 0 && below+n >= rank {
			at += (bound - at) * max(0, rank-below) / n
			break
		}
		below, at = below+n, bound
	}
	return new(time.Duration(at * float64(time.Second)).Seconds())
}

// waitFields are what waits are counted under: the bound that each is at most.
var waitFields = func() (fields []string) {
	for _, bound := range append(slices.Clone(waits), math.Inf(1)) {
		fields = append(fields, strconv.FormatFloat(bound, 'f', -1, 64))
	}
	return fields
}()

// ReadPast returns what the scope's processes did from a moment on to another, in slices of
// a step, which is whole minutes, or whole hours: then it reaches further back. Slices
// begin at whole steps by the clock of to's zone, so the first may begin before from; an
// hour counts in the slice in which it begins.
func ReadPast(ctx context.Context, rdb redis.UniversalClient, scope string, from, to time.Time, step time.Duration) (Past, error) {
	_, off := to.Zone()
	zone := time.Duration(off) * time.Second
	begin := from.Add(zone).Truncate(step).Add(-zone)
	p := Past{At: to, From: from, Step: step.Seconds(), Whole: newSlice(from)}
	for at := begin; !at.After(to); at = at.Add(step) {
		p.Slices = append(p.Slices, newSlice(at.In(to.Location())))
	}
	// Where each is kept: the parts of a span in one hash.
	key, span, part := "minutes:", time.Hour, time.Minute
	if step%time.Hour == 0 {
		key, span, part = "hours:", day, time.Hour
	}
	first := begin.UnixMicro() / span.Microseconds()
	pipe := rdb.Pipeline()
	var answers []*redis.MapStringStringCmd
	for i := first; i <= to.UnixMicro()/span.Microseconds(); i++ {
		answers = append(answers, pipe.HGetAll(ctx, lua.Prefix(scope)+key+strconv.FormatInt(i, 10)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return p, err
	}
	for i, answer := range answers {
		of := time.UnixMicro((first + int64(i)) * span.Microseconds())
		for name, text := range answer.Val() {
			number, field, _ := strings.Cut(name, "\n")
			in, wrong := strconv.Atoi(number)
			n, err := strconv.ParseInt(text, 10, 64)
			at := of.Add(time.Duration(in) * part)
			if i := int(at.Sub(begin) / step); wrong == nil && err == nil && !at.Before(begin) && i < len(p.Slices) {
				p.Slices[i].add(field, n)
				p.Whole.add(field, n)
			}
		}
	}
	for i := range p.Slices {
		s := &p.Slices[i]
		s.WaitP50, s.WaitP99 = s.waits.quantile(.5), s.waits.quantile(.99)
	}
	return p, nil
}
