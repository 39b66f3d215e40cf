package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// snapshot is the data that was read at one time. Its data does not change.
type snapshot struct {
	data
	At  time.Time // time of the last read, or of the failed one, by this process's clock
	Now time.Time // Redis's time when the data was read, in this process's zone
	Err error     // the error of the last read; nil if the data is current
}

// outdated returns a snapshot with the same data and an error.
func (s *snapshot) outdated(err error) *snapshot {
	return &snapshot{data: s.data, At: time.Now(), Now: s.Now, Err: err}
}

// data is the data of a snapshot.
type data struct {
	Latency       time.Duration // of a call to Redis
	Waiting       int           // waiting and granted jobs
	HasDispatcher bool
	Pending       int        // jobs in the forecast that have not requested permits yet
	WithoutRule   int        // pending jobs whose rule is unknown, which are not in the forecast
	Limits        []limitRow // the highest demand first
	Queues        queues
	Changes       []throttle.Change // the newest first
	Summary       summary
	demand        map[string][]waitdb.Demand // by limit, the key with the highest demand first
	forecasts     []*forecast.Forecast       // of the scopes where jobs wait or are pending
}

// position returns a job's position with the estimate of the forecast.
func (d data) position(p waitdb.Position) *waitdb.Position {
	for _, f := range d.forecasts { // one of them has the lane
		p = f.Position(p)
	}
	return &p
}

// queues are asynq's queues, with sums over all of them.
type queues struct {
	Infos             []inspect.QueueInfo // by name
	Running, Archived int                 // jobs
	Servers           int                 // processes with an asynq server, of any scope
}

// limitRow is a limit in the table.
type limitRow struct {
	inspect.Limit
	Steps []stats.LimitSummary // of the chart; the last is incomplete
	Sum   stats.LimitSummary   // of Steps
	From  time.Time            // when Steps begin
	now   time.Time
}

// levels are the classes of states in the style sheet.
var levels = map[inspect.State]string{
	inspect.Paused: "bad", inspect.Blocked: "bad", inspect.KeysBlocked: "bad",
	inspect.Exhausted: "wait", inspect.WillBeExhausted: "wait", inspect.Saturated: "wait",
	inspect.Flowing: "good", inspect.Idle: "quiet",
}

// Level is the class of the state.
func (r limitRow) Level() string { return levels[r.Limit.State] }

// State describes the state in a few words.
func (r limitRow) State() string {
	switch r.Limit.State {
	case inspect.Blocked:
		return "blocked until " + clock(r.Blocks[0].Until, r.now)
	case inspect.KeysBlocked:
		return display.Count(len(r.Blocks), "key") + " blocked"
	}
	return string(r.Limit.State)
}

// Used describes how full the limit is.
func (r limitRow) Used() string {
	if len(r.Meters) == 0 {
		if r.Keyed {
			return "no key waits"
		}
		return ""
	}
	if !r.Keyed {
		if m := r.DefaultMeter; m.PerSecond == 0 || r.Windowed() {
			return fmt.Sprintf("%s of %s", display.Number(m.Used()), display.Number(m.Capacity))
		}
		return fmt.Sprintf("%s of %s /s", perSecond(r.Permits), perSecond(r.DefaultMeter.PerSecond))
	}
	text := fmt.Sprintf("%d of %s full", r.FullMeters(), display.Count(len(r.Meters), "key"))
	if len(r.Meters) < r.KeyCount {
		text = fmt.Sprintf("%d of %d busiest keys full", r.FullMeters(), len(r.Meters))
	}
	if n := len(r.Blocks); n > 0 {
		text += fmt.Sprintf(", %s blocked", display.Number(n))
	}
	return text
}

// Rule describes the definition, without the pause.
func (r limitRow) Rule() string {
	l := r.Limit.Limit
	l.Paused = false
	return l.String()
}

// rates returns the rate per second of a count, for each step that is over.
func (r limitRow) rates(count func(stats.LimitSummary) int64) (rates []float64) {
	for _, step := range r.Steps[:max(0, len(r.Steps)-1)] {
		rates = append(rates, float64(count(step))/chartStep.Seconds())
	}
	return rates
}

func permits(l stats.LimitSummary) int64 { return l.Permits }
func denied(l stats.LimitSummary) int64  { return l.Denied }

// The size of a sparkline in the viewBox of the template.
const sparkWidth, sparkHeight = 150.0, 28.0

// sparkline is a small chart of permits a second.
type sparkline struct {
	Points  string // of an SVG polyline
	Allowed string // y of the line of the allowed rate; empty for none
	Text    string // for people who cannot see it
}

// Spark draws the limit's permits. It also draws the allowed rate, unless that is twenty times the
// highest rate of permits or more.
func (r limitRow) Spark() sparkline {
	rates := r.rates(permits)
	highest, allowed := slices.Max(rates), 0.0
	if !r.Keyed && highest > 0 && r.DefaultMeter.PerSecond < 20*highest {
		allowed = r.DefaultMeter.PerSecond
	}
	top := max(highest, allowed) * 1.08
	y := func(rate float64) float64 {
		if top == 0 {
			return sparkHeight - 1
		}
		return sparkHeight - 1 - (sparkHeight-2)*rate/top
	}
	var points strings.Builder
	for i, rate := range rates {
		fmt.Fprintf(&points, "%.1f,%.1f ", float64(i)*sparkWidth/float64(len(rates)-1), y(rate))
	}
	s := sparkline{
		Points: strings.TrimSpace(points.String()),
		Text:   display.Count(int(r.Sum.Permits), "permit") + " in 15 minutes, at most " + perSecond(highest) + " a second",
	}
	if allowed > 0 {
		s.Allowed = fmt.Sprintf("%.1f", y(allowed))
	}
	return s
}

// Chart returns the data of the large chart as JSON, for an attribute. A limit with keys has no
// allowed rate, because the chart is the sum over its keys.
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

// summary is the data of the sentence at the top of the page.
type summary struct {
	Chief    string            // the limit at which jobs wait for the most permits
	All      bool              // at least 90 % of the awaited permits are of this limit
	Since    time.Time         // of the first denial of the oldest waiting job; zero if unknown
	ETA      forecast.Estimate // of the last job, from Now on
	Troubles []trouble         // for an operator to look at, at most four
}

// trouble is a few words about something that is wrong, with a class of the style sheet.
type trouble struct{ Level, Text string }

func summarize(d data, now time.Time) summary {
	now = now.Local()
	var s summary
	add := func(level, format string, args ...any) {
		s.Troubles = append(s.Troubles, trouble{level, fmt.Sprintf(format, args...)})
	}
	if d.Waiting > 0 && !d.HasDispatcher {
		add("bad", "there is no dispatcher: no worker is running, or none can reach Redis")
	}
	wanted := 0
	for i := range d.Limits {
		row := &d.Limits[i]
		wanted += row.Waiting
		if s.Since.IsZero() || !row.Since.IsZero() && row.Since.Before(s.Since) {
			s.Since = row.Since
		}
		switch {
		case row.Paused:
			text := row.Name + " is paused"
			if c := lastChange(d.Changes, "paused", row.Name, ""); !c.At.IsZero() {
				text += " since " + clock(c.At, now) + by(c)
			}
			add("bad", "%s", text)
		case row.Limit.State == inspect.Exhausted:
			add("wait", "%s is exhausted until %s (%s)", row.Name, clock(now.Add(row.NextIn), now), span(row.NextIn))
		case len(row.Blocks) == 1:
			b := row.Blocks[0]
			add("bad", "%s is blocked until %s%s", meterName(row.Name+"|"+b.Key), clock(b.Until, now), by(lastChange(d.Changes, "blocked", row.Name, b.Key)))
		case len(row.Blocks) > 1:
			add("bad", "%s of %s are blocked", display.Count(len(row.Blocks), "key"), row.Name)
		}
	}
	if len(d.Limits) > 0 && d.Limits[0].Waiting > 0 && d.Waiting > 0 {
		s.Chief = d.Limits[0].Name
		s.All = d.Limits[0].Waiting*10 >= wanted*9
	}
	for i, f := range d.forecasts {
		last, unknown := f.Last()
		if unknown != nil {
			last = unknown.OrLater(last)
		}
		last.StartsIn = max(0, f.At.Add(last.StartsIn).Sub(now))
		if i > 0 {
			last = last.OrLater(s.ETA)
		}
		s.ETA = last
	}
	if len(s.Troubles) > 4 {
		s.Troubles = append(s.Troubles[:3], trouble{"bad", fmt.Sprintf("and %d more", len(s.Troubles)-3)})
	}
	return s
}

// lastChange returns the newest change of a limit or key with this What, or the zero value.
func lastChange(changes []throttle.Change, what, limit, key string) (c throttle.Change) {
	for _, c := range changes {
		if c.What == what && c.Limit == limit && c.Key == key {
			return c
		}
	}
	return c
}

// by returns " by NAME", or nothing if the author of a change is unknown.
func by(c throttle.Change) string {
	if c.By == "" {
		return ""
	}
	return " by " + short(c.By)
}

// event is a line of the changelog.
type event struct {
	At   time.Time
	Text string
	Note string          // who made the change
	Job  *throttle.JobID // to link to, or nil
}

func changeEvent(c throttle.Change, now time.Time) event {
	e := event{At: c.At, Text: meterName(c.Limit + "|" + c.Key), Note: strings.TrimSpace(by(c))}
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
	return e
}
