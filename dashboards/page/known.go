package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// snapshot is all that was read in one turn. It does not change any more.
type snapshot struct {
	knowledge
	// At is when it was read, by this process's clock, which says whether it is old.
	At time.Time
	// Now is Redis's time then, in this process's zone. All that is told in times or
	// spans goes by it: limits are counted, and jobs wait, by Redis's clock.
	Now time.Time
	// Err is why it is older than it should be; nil where it is not.
	Err   error
	asked atomic.Bool   // for a newer one
	newer chan struct{} // is closed when that is there
}

// outdated is what is still known where nothing newer can be read, and why.
func (s *snapshot) outdated(err error) *snapshot {
	return &snapshot{knowledge: s.knowledge, At: time.Now(), Now: s.Now, Err: err, newer: make(chan struct{})}
}

// place is where a job stands, as the forecast has it.
func (k knowledge) place(p waitdb.Position) *waitdb.Position {
	if k.forecast != nil {
		p = k.forecast.Position(p)
	}
	return &p
}

// knowledge is what a snapshot tells. Where the next turn cannot read, its snapshot has
// that of the one before.
type knowledge struct {
	// Latency is how long Redis took to tell its time: the way there and back, and
	// what it was busy with.
	Latency time.Duration
	Waiting int  // jobs, or called
	Turns   bool // whether anybody gives turns
	// Pending is how many jobs have not asked for permits yet, as the forecast counts them, and
	// Uncounted how many of these it does not.
	Pending, Uncounted int
	Limits             []limitRow // what most waits for first
	Queues             queues
	Log                []throttle.Change // the newest first, some 500
	Denials            []incident        // the newest first, some of the last
	// Says is the answer above all tables, made of the rest.
	Says says
	// wants are the keys that anything waits for, by limit, the most wanted first. Permits of
	// called jobs do not count: they are reserved.
	wants map[string][]waitdb.Demand
	// forecast is when those run that wait; nil where nothing does.
	forecast *forecast.Forecast
}

// queues is what asynq says, with sums over all queues. Its numbers are up to five
// seconds old.
type queues struct {
	Infos             []inspect.QueueInfo // by name
	Running, Archived int                 // jobs, also those that need no permits
	Servers           int                 // processes with an asynq server, of any scope
}

// limitRow is a limit as the table shows it: how it stands, with what became of the last
// 15 minutes.
type limitRow struct {
	inspect.Limit
	// Row is the last 15 minutes in parts of 10 seconds, the last of which is not over, Sum
	// all of them, and From when they begin.
	Row  []stats.LimitSummary
	Sum  stats.LimitSummary
	From time.Time
	now  time.Time
}

// levels is how bad states are, in classes of the style sheet: good, wait, bad or quiet.
var levels = map[inspect.State]string{
	inspect.Paused: "bad", inspect.Blocked: "bad", inspect.KeysBlocked: "bad",
	inspect.Exhausted: "wait", inspect.WillBeExhausted: "wait", inspect.Saturated: "wait",
	inspect.Flowing: "good", inspect.Idle: "quiet",
}

func (r limitRow) Level() string { return levels[r.Limit.State] }

// State is how the limit stands in a few words.
func (r limitRow) State() string {
	switch r.Limit.State {
	case inspect.Blocked:
		return "blocked until " + clock(r.Blocks[0].Until, r.now)
	case inspect.KeysBlocked:
		return display.Count(len(r.Blocks), "key") + " blocked"
	}
	return string(r.Limit.State)
}

// Used is how full the limit is in words, and with keys how many of them are full.
func (r limitRow) Used() string {
	if len(r.Meters) == 0 {
		if r.Keyed {
			return "no key waits"
		}
		return ""
	}
	if !r.Keyed {
		if m := r.DefaultMeter; r.DefaultMeter.PerSecond == 0 || r.Windowed() {
			return fmt.Sprintf("%s of %s", display.Number(m.Used()), display.Number(m.Capacity))
		}
		return fmt.Sprintf("%s of %s /s", perSecond(r.Permits), perSecond(r.DefaultMeter.PerSecond))
	}
	text := fmt.Sprintf("%d of %s full", r.FullMeters(), display.Count(len(r.Meters), "key"))
	if len(r.Meters) < r.Keys {
		text = fmt.Sprintf("%d of %d busiest keys full", r.FullMeters(), len(r.Meters))
	}
	if n := len(r.Blocks); n > 0 {
		text += fmt.Sprintf(", %s blocked", display.Number(n))
	}
	return text
}

// Rule is what the limit is in a few words, as Limit.String writes it, but for the pause,
// which the row says elsewhere.
func (r limitRow) Rule() string {
	l := r.Limit.Limit
	l.Paused = false
	return l.String()
}

// rates are so many a second of each part of the row that is over: the last is not, and would
// be a fall to zero at the end of a curve.
func (r limitRow) rates(of func(stats.LimitSummary) int64) (rates []float64) {
	for _, t := range r.Row[:max(0, len(r.Row)-1)] {
		rates = append(rates, float64(of(t))/part.Seconds())
	}
	return rates
}

func permits(l stats.LimitSummary) int64 { return l.Permits }
func denied(l stats.LimitSummary) int64  { return l.Denied }

// The size of a small curve, in its own units, which the template's viewBox has too:
// the style sheet makes it as large as the column.
const sparkWidth, sparkHeight = 150.0, 28.0

// sparkline is the last 15 minutes of a limit in the least of space.
type sparkline struct {
	// Points are the curve in the form of SVG: x,y for each 10 seconds, y from the top.
	Points string
	// Allowed is the y of the line of what is allowed; empty for none.
	Allowed string
	// Text says the same for those who cannot see the curve.
	Text string
}

// Spark draws the limit's row. The height is that of the highest part, or of what is
// allowed where that is near enough to be seen beside it: up to twenty times as high,
// as a curve below that is a flat line. Of a limit with keys nothing says what all of
// them together are allowed.
func (r limitRow) Spark() sparkline {
	rates := r.rates(permits)
	most := slices.Max(rates)
	// 0 is no line.
	allowed := 0.0
	if !r.Keyed && (most > 0 && r.DefaultMeter.PerSecond < 20*most) {
		allowed = r.DefaultMeter.PerSecond
	}
	// Nothing touches the upper edge.
	top := max(most, allowed) * 1.08
	s := sparkline{Points: polyline(rates, sparkWidth, sparkHeight, top), Text: display.Count(int(r.Sum.Permits), "permit") + " in 15 minutes, at most " + perSecond(most) + " a second"}
	if allowed > 0 {
		s.Allowed = fmt.Sprintf("%.1f", level(allowed, sparkHeight, top))
	}
	return s
}

// Chart is what the script draws: permits and denials a second, each 10 seconds from a moment
// on, and how many are allowed, where one number says that: not of a limit with keys, whose row
// is the sum over all of them. The moment is in Unix seconds. It stands in an attribute, where
// html/template escapes it: a script in the page, with the data in it, could not run.
func (r limitRow) Chart() (string, error) {
	allowed := r.DefaultMeter.PerSecond
	if r.Keyed {
		allowed = 0
	}
	text, err := json.Marshal(map[string]any{
		"from": r.From.Unix(), "permits": r.rates(permits), "denials": r.rates(denied), "allowed": allowed,
	})
	return string(text), err
}

// says is the answer, before all figures: how many jobs wait, for what, and until when
// the last of them will have run.
type says struct {
	Chief string // the limit that most wait for
	All   bool   // whether nearly all do: nine of ten
	// Since is when the job that waits longest was denied first, and For how long ago
	// that was, in whole seconds. Both are zero where that is not known.
	Since time.Time
	For   time.Duration
	// LastIn is how long until the last of all that wait would run, and Last when that
	// is, of those limits of which it can be told.
	LastIn time.Duration
	Last   time.Time
	About  bool // whether that is an estimate
	// Unknown is a limit of which nobody knows when the last runs; empty where there
	// is none.
	Unknown string
	// NotBefore is a lower bound for those jobs, nil if there is none.
	NotBefore *time.Time
	// Troubles are what an operator should look at, in the order of the table.
	Troubles []trouble
}

// trouble is something that needs a look, and how much: its Level is a class of the
// style sheet, bad for what somebody should do something about and wait for what time
// mends. Its Text is the beginning of a sentence for people, with keys made visible.
type trouble struct{ Level, Text string }

// summarize makes the answer of what is known. More than four troubles are three and a
// number, so that the answer stays one.
func summarize(k knowledge, now time.Time) says {
	now = now.Local()
	var s says
	add := func(level, format string, args ...any) {
		s.Troubles = append(s.Troubles, trouble{level, fmt.Sprintf(format, args...)})
	}
	// First, as it explains all else: jobs come by asynq's polls then, or not at all.
	if k.Waiting > 0 && !k.Turns {
		add("bad", "nobody gives turns: no worker runs, or none reaches Redis")
	}
	waiting := 0
	for i := range k.Limits {
		row := &k.Limits[i]
		waiting += row.Waiting
		if s.Since.IsZero() || !row.Since.IsZero() && row.Since.Before(s.Since) {
			s.Since = row.Since
		}
		switch {
		case row.Paused:
			add("bad", "%s is paused%s", row.Name, sinceWhen(k.Log, row.Name, now))
		case row.Limit.State == inspect.Exhausted:
			add("wait", "%s is exhausted until %s (%s)", row.Name, clock(now.Add(row.NextIn), now), span(row.NextIn))
		case len(row.Blocks) == 1:
			b := row.Blocks[0]
			add("bad", "%s is blocked until %s%s", meterName(row.Name+"|"+b.Key), clock(b.Until, now), by(lastChange(k.Log, "blocked", row.Name, b.Key)))
		case len(row.Blocks) > 1:
			add("bad", "%s of %s are blocked", display.Count(len(row.Blocks), "key"), row.Name)
		}
	}
	if len(k.Limits) > 0 && k.Limits[0].Waiting > 0 && k.Waiting > 0 {
		s.Chief = k.Limits[0].Name
		// Permits are held against permits, not jobs.
		s.All = k.Limits[0].Waiting*10 >= waiting*9
	}
	if k.forecast != nil {
		last, unknown := k.forecast.Last()
		s.Last, s.About = k.forecast.At.Add(last.StartsIn).In(now.Location()), last.Estimated
		s.LastIn = max(0, s.Last.Sub(now))
		if unknown != nil {
			s.Unknown = unknown.Limit
			if unknown.AtLeast && unknown.StartsIn > 0 {
				s.NotBefore = new(k.forecast.At.Add(unknown.StartsIn).In(now.Location()))
			}
		}
	}
	if !s.Since.IsZero() {
		s.For = max(0, now.Sub(s.Since)).Truncate(time.Second)
	}
	// The rest is in the table, where each row has its chip.
	if len(s.Troubles) > 4 {
		more := len(s.Troubles) - 3
		s.Troubles = append(s.Troubles[:3], trouble{"bad", fmt.Sprintf("and %d more", more)})
	}
	return s
}

// lastChange is the last change of this sort to a limit, or to a key of it, if that is not too
// long ago: the changelog has the last 500 or so of the scope, the newest first.
func lastChange(log []throttle.Change, what, limit, key string) (c throttle.Change) {
	for _, c := range log {
		if c.What == what && c.Limit == limit && c.Key == key {
			return c
		}
	}
	return c
}

// sinceWhen says since when and by whom a limit is paused, if that is known.
func sinceWhen(log []throttle.Change, limit string, now time.Time) string {
	c := lastChange(log, "paused", limit, "")
	if c.At.IsZero() {
		return ""
	}
	return " since " + clock(c.At, now) + by(c)
}

// by says who made a change: a user, a program, or "upstream" where the other side's answer
// did.
func by(c throttle.Change) string {
	if c.By == "" {
		return ""
	}
	return " by " + short(c.By)
}

// incident is a line of what happened just now. Its texts are visible and cut already.
type incident struct {
	At   time.Time // by Redis's clock
	Text string
	Note string          // beside it: who did it, or how long a job was told to wait
	Job  *throttle.JobID // that it links to; nil where it is about no job, or several
}

// changeEvent is an entry of the changelog as a line: what it is about and what became
// of that. An entry is about a schedule, jobs, a queue, or a limit and perhaps a key of it.
func changeEvent(c throttle.Change, now time.Time) incident {
	e := incident{At: c.At, Text: meterName(c.Limit + "|" + c.Key)}
	switch {
	case c.Schedule != "":
		e.Text = "schedule " + short(c.Schedule) + " " + c.What
	case c.Job.ID != "":
		e.Text, e.Job = "job "+c.What+" of queue "+short(c.Job.Queue), &c.Job
	case c.Jobs > 0:
		e.Text = display.Count(c.Jobs, "job") + " " + c.What
		if c.Job.Queue != "" {
			e.Text += " of queue " + short(c.Job.Queue)
		}
	case c.Job.Queue != "":
		e.Text = "queue " + short(c.Job.Queue) + " " + c.What
	case c.What == "blocked":
		e.Text += " blocked until " + clock(c.Until, now)
	case c.What == "set" && c.From != "", c.What == "defined" && c.From != "":
		e.Text += ": " + display.Visible(c.From, shortText) + " → " + display.Visible(c.To, shortText)
	case c.To != "":
		e.Text += " " + c.What + ": " + display.Visible(c.To, shortText)
	default:
		e.Text += " " + c.What
	}
	e.Note = strings.TrimSpace(by(c))
	return e
}

// denialEvent is a call that was denied, for example: a process tells at most one a second
// for each limit, up to a second later.
func denialEvent(at time.Time, limit string, d stats.Denial) incident {
	note := "its turn comes in about " + span(d.RetryAfter)
	switch {
	case d.Unknown:
		note = "nobody can tell for how long"
	case d.RetryAfter < time.Millisecond:
		note = "others have the turn"
	}
	return incident{
		At: at, Text: meterName(limit+"|"+d.Key) + " denied a job", Note: note,
		Job: &throttle.JobID{Queue: d.Queue, ID: d.ID},
	}
}

// The last 15 minutes, in parts of 10 seconds: a minute less than the stream in Redis
// reaches back.
const (
	part  = 10 * time.Second
	parts = 90
)

// polyline is a curve in the form of SVG: x,y for each number, y from the upper edge of a box
// of that size, which stands for top.
func polyline(numbers []float64, width, height, top float64) string {
	var points strings.Builder
	// A tenth of a unit is less than a pixel: more digits would only be sent.
	for i, n := range numbers {
		fmt.Fprintf(&points, "%.1f,%.1f ", float64(i)*width/float64(len(numbers)-1), level(n, height, top))
	}
	return strings.TrimSpace(points.String())
}

// level is where a number lies in such a box. A curve of zeros lies on the lower edge.
func level(n, height, top float64) float64 {
	if top == 0 {
		return height - 1
	}
	return height - 1 - (height-2)*n/top
}
