package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/throttle"
)

// snapshot has the data of one read. Nothing changes a snapshot.
type snapshot struct {
	*inspect.Status
	Limits  []limitRow        // the highest demand first
	Changes []throttle.Change // the newest first
	Now     time.Time         // Redis's time at the read, in this process's zone
	Err     error             // why the newest read failed; nil if it gave this data
}

// Trouble says why the newest read failed, or "".
func (s *snapshot) Trouble() string {
	switch {
	case s.Err == nil:
		return ""
	case errors.Is(s.Err, errSlow):
		return strings.TrimSuffix(sentence(s.Err), ".")
	case redishealth.ProblemOf(s.Err) == redishealth.Unreachable:
		return "Redis does not answer"
	}
	return "Redis cannot be read"
}

// sentence returns the text of an error of this package as a sentence.
func sentence(err error) string { return strings.ToUpper(err.Error()[:1]) + err.Error()[1:] + "." }

// Jobs returns the number of jobs in a state, in all queues.
func (s *snapshot) Jobs(state string) (n int) {
	for _, q := range s.Queues {
		n += q.Count(state)
	}
	return n
}

// Alive returns the number of worker processes that are not lost.
func (s *snapshot) Alive() (n int) {
	for _, w := range s.Workers {
		if !w.Lost {
			n++
		}
	}
	return n
}

// Since returns the time of the first denial of the oldest waiting job, or zero if it is unknown.
func (s *snapshot) Since() (oldest time.Time) {
	for _, row := range s.Limits {
		if oldest.IsZero() || !row.Since.IsZero() && row.Since.Before(oldest) {
			oldest = row.Since
		}
	}
	return oldest
}

// By returns " by NAME" for the newest change of a key with this What. It returns "" if there is no
// such change or its author is unknown.
func (s *snapshot) By(what, limit, key string) string {
	for _, c := range s.Changes {
		if c.What == what && c.Limit == limit && c.Key == key {
			return by(c)
		}
	}
	return ""
}

func by(c throttle.Change) string {
	if c.By == "" {
		return ""
	}
	return " by " + short(c.By)
}

func changeText(c throttle.Change) string {
	text, ofQueue := meterName(c.Limit+"|"+c.Key), ""
	if c.Job.Queue != "" {
		ofQueue = " of queue " + short(c.Job.Queue)
	}
	switch {
	case c.Schedule != "":
		return "schedule " + short(c.Schedule) + " " + c.What
	case c.Job.ID != "":
		return "job " + c.What + ofQueue
	case c.Jobs > 0:
		return display.Count(c.Jobs, "job") + " " + c.What + ofQueue
	case c.Job.Queue != "":
		return "queue " + short(c.Job.Queue) + " " + c.What
	case c.What == "blocked":
		return text + " blocked until " + clock(c.Until, time.Now())
	case c.From != "" && c.To != "":
		if c.What == "unset" {
			text += " unset"
		}
		return text + ": " + display.Visible(c.From, shortText) + " → " + display.Visible(c.To, shortText)
	case c.To != "":
		return text + " " + c.What + ": " + display.Visible(c.To, shortText)
	}
	return text + " " + c.What
}

type limitRow struct {
	inspect.Limit
	chart chart
	Sum   stats.LimitSummary // sum of the last 15 minutes, up to now
	now   time.Time
}

// chart has the rates per second of the last 15 minutes, one for each step. The current step is not
// in the chart.
type chart struct {
	From    int64     `json:"from"` // Unix seconds
	Permits []float64 `json:"permits"`
	Denials []float64 `json:"denials"`
	Allowed float64   `json:"allowed"` // the limit's rate; 0 for a limit with keys
}

// levels has, by state, the class in the style sheet.
var levels = map[inspect.State]string{
	inspect.Paused: "bad", inspect.Blocked: "bad", inspect.KeysBlocked: "bad",
	inspect.Exhausted: "wait", inspect.WillBeExhausted: "wait", inspect.Saturated: "wait",
	inspect.Flowing: "good", inspect.Idle: "quiet",
}

// Level returns the class of the state.
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
	switch m := r.DefaultMeter; {
	case len(r.Meters) == 0 && r.Keyed:
		return "no key waits"
	case len(r.Meters) == 0:
		return ""
	case !r.Keyed && (m.PerSecond == 0 || r.Windowed()):
		return display.Number(m.Used()) + " of " + display.Number(m.Capacity)
	case !r.Keyed && m.Owed > 0:
		return perSecond(r.Permits) + " of " + perSecond(m.PerSecond) + " /s, " + display.Count(m.Owed, "permit") + " owed"
	case !r.Keyed:
		return perSecond(r.Permits) + " of " + perSecond(m.PerSecond) + " /s"
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

// Rule describes the definition of the limit, without "paused".
func (r limitRow) Rule() string {
	l := r.Definition.Limit
	l.Paused = false
	return l.String()
}

// sparkline is a small chart of permits a second.
type sparkline struct {
	Points string // of an SVG polyline
	Text   string // says the same to people who cannot see the chart
}

// Spark draws the limit's permits.
func (r limitRow) Spark() sparkline {
	const width, height = 150.0, 28.0 // of the viewBox in the template
	highest := slices.Max(r.chart.Permits)
	var points []string
	for i, rate := range r.chart.Permits {
		points = append(points, fmt.Sprintf("%.1f,%.1f", float64(i)*width/(chartSteps-2), height-1-(height-2)*rate/max(highest, 0.01)))
	}
	return sparkline{
		Points: strings.Join(points, " "),
		Text:   display.Count(int(r.Sum.Permits), "permit") + " in 15 minutes, at most " + perSecond(highest) + " a second",
	}
}

// Chart returns the data of the large chart as JSON, for an attribute.
func (r limitRow) Chart() (string, error) {
	if !r.Keyed { // the chart of a limit with keys is the sum over its keys, to which no single rate applies
		r.chart.Allowed = r.DefaultMeter.PerSecond
	}
	text, err := json.Marshal(r.chart)
	return string(text), err
}
