package history

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
	"unicode/utf8"

	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/throttle"
)

// Summary is what one process did in one second, or since its last summary.
// Those limits and tasks of which there is nothing to say are not in it.
type Summary struct {
	// ID is the summary's place in the stream, and At when it was written, by
	// Redis's clock.
	ID string    `json:"-"`
	At time.Time `json:"-"`
	// Process is a random name of the one that wrote it.
	Process string             `json:"p"`
	Limits  map[string]Limited `json:"l,omitempty"`
	Tasks   []TaskNews         `json:"t,omitempty"`
}

// Limited is what was decided of a limit.
type Limited struct {
	Allowed int64 `json:"a,omitempty"`
	Denied  int64 `json:"d,omitempty"`
	// Refused counts what can never be, or not in time, or has no limit.
	Refused int64 `json:"r,omitempty"`
	Permits int64 `json:"p,omitempty"`
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
type TaskNews struct {
	Queue string `json:"q"`
	Type  string `json:"t"`
	Ends  Counts `json:"e"`
	Busy  int64  `json:"b,omitempty"`
}

// Task is what jobs are counted by.
type Task struct{ Queue, Type string }

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

func (c Counts) sum() (n int64) {
	for _, of := range c {
		n += of
	}
	return n
}

// maxWritten is how many limits, and how many tasks, a summary names. The rest
// is under Other.
const maxWritten = 50

// Plus adds what was decided of another limit.
func (l Limited) Plus(other Limited) Limited {
	l.Allowed += other.Allowed
	l.Denied += other.Denied
	l.Refused += other.Refused
	l.Permits += other.Permits
	return l
}

func (l Limited) sum() int64 { return l.Allowed + l.Denied + l.Refused }

func limited(c LimitCounts) Limited {
	d := c.Decisions
	return Limited{
		Allowed: d[throttle.Allowed], Denied: d[throttle.Denied],
		Refused: d[throttle.Never] + d[throttle.NoLimit] + d[throttle.TooLate], Permits: c.Permits, Denial: c.denial,
	}
}

// minus is what was added since.
func (l Limited) minus(before Limited) Limited {
	return Limited{
		Allowed: l.Allowed - before.Allowed, Denied: l.Denied - before.Denied,
		Refused: l.Refused - before.Refused, Permits: l.Permits - before.Permits,
	}
}

func (c Counts) minus(before Counts) Counts {
	for i := range c {
		c[i] -= before[i]
	}
	return c
}

// Other counts what has a name that is one too many, or no name for a label: with
// control characters, wrong UTF-8 or more than 100 bytes.
const Other = "other"

// label is a name as a label: itself, or Other.
func label(name string) string {
	if !isLabel(name) {
		return Other
	}
	return name
}

func isLabel(name string) bool {
	control := func(c rune) bool { return c < ' ' || c == 0x7f }
	return len(name) <= 100 && utf8.ValidString(name) && !strings.ContainsFunc(name, control)
}

const (
	// every is how often what is new is written.
	every = time.Second
	// reach is how far back the stream goes.
	reach = 16 * time.Minute
	// patience bounds a call of Redis, so that a slow one holds up no shutdown.
	patience = 2 * time.Second
	// maxTotals is how many fields the totals have, but for those of Other: what
	// has no name of its own then is counted under Other.
	maxTotals = 5000
)

type counted struct {
	limits map[string]Limited
	tasks  map[Task]TaskCounts
	waits  []uint64
}

// Start begins to write each second what is new, and what waits where that is this
// process's to say. The function that it returns ends that, after what is left has been
// written; it may be called again.
func (r *Recorder) Start() (stop func()) {
	if r.off {
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

// run writes until ctx ends, and then what is left.
func (r *Recorder) run(ctx context.Context) {
	second, look, alive := time.NewTicker(every), time.NewTimer(every), time.NewTicker(aliveEach)
	defer second.Stop()
	defer look.Stop()
	defer alive.Stop()
	r.sayAlive(ctx)
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.Background(), 2*patience)
			defer cancel()
			r.write(last)
			r.stopSurvey(last)
			r.say(last, "")
			return
		case <-alive.C:
			r.sayAlive(ctx)
		case <-second.C:
			r.write(context.Background())
		case <-look.C:
			r.lookAround(ctx)
			look.Reset(surveyEach)
		}
	}
}

// write writes what is new, if anything is. What cannot be written is still new
// the next time.
func (r *Recorder) write(ctx context.Context) {
	now := r.count()
	s := &Summary{Process: r.process, Limits: now.newLimits(r.written), Tasks: now.newTasks(r.written)}
	if len(s.Limits) == 0 && len(s.Tasks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.send(ctx, s, now.waits); err != nil {
		r.Unwritten.Add(1)
		return
	}
	r.written = now
}

func (r *Recorder) send(ctx context.Context, s *Summary, waits []uint64) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	r.sent++
	args := []any{text, reach.Microseconds(), maxTotals, Other, r.process, r.sent}
	add := func(n int64, names ...string) {
		if n > 0 {
			args = append(args, strings.Join(names, "\n"), n)
		}
	}
	for i, n := range waits {
		if r.written.waits != nil {
			n -= r.written.waits[i]
		}
		add(int64(n), waitFields[i])
	}
	for name, l := range s.Limits {
		add(l.Allowed, name, allowedField)
		add(l.Denied, name, deniedField)
	}
	for _, t := range s.Tasks {
		for end, n := range t.Ends {
			add(n, t.Queue, t.Type, End(end).String())
		}
	}
	return lua.Record.Run(ctx, r.rdb, []string{r.prefix}, args...).Err()
}

func (r *Recorder) count() counted {
	now := counted{limits: map[string]Limited{}, tasks: map[Task]TaskCounts{}}
	now.waits, _ = r.Wait.load()
	for _, c := range r.Limits() {
		now.limits[c.Limit] = limited(c)
	}
	for _, c := range r.Tasks() {
		now.tasks[c.Task] = c
	}
	return now
}

// newLimits is what was decided since, of the busiest limits by name.
func (c counted) newLimits(before counted) map[string]Limited {
	found := map[string]Limited{}
	for name, now := range c.limits {
		if news := now.minus(before.limits[name]); news.sum() > 0 {
			if news.Denied > 0 && name != Other {
				news.Denial = now.Denial
			}
			found[name] = news
		}
	}
	busiest := slices.SortedFunc(maps.Keys(found), func(a, b string) int { return cmp.Compare(found[b].sum(), found[a].sum()) })
	for _, name := range busiest[min(maxWritten, len(busiest)):] {
		if name != Other {
			found[Other] = found[Other].Plus(found[name])
			delete(found, name)
		}
	}
	return found
}

// newTasks is what became of jobs since, of the busiest tasks by name.
func (c counted) newTasks(before counted) (found []TaskNews) {
	for task, now := range c.tasks {
		was := before.tasks[task]
		if news := now.Ends.minus(was.Ends); news.sum() > 0 || now.Busy != was.Busy {
			found = append(found, TaskNews{task.Queue, task.Type, news, now.Busy})
		}
	}
	slices.SortFunc(found, func(a, b TaskNews) int {
		return cmp.Or(cmp.Compare(b.Ends.sum(), a.Ends.sum()), cmp.Compare(a.Queue+"\n"+a.Type, b.Queue+"\n"+b.Type))
	})
	if len(found) <= maxWritten {
		return found
	}
	rest := TaskNews{Queue: Other, Type: Other}
	for _, t := range found[maxWritten:] {
		rest.Busy += t.Busy
		for end := range t.Ends {
			rest.Ends[end] += t.Ends[end]
		}
	}
	return append(found[:maxWritten], rest)
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
