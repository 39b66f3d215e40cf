package page

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

// limitRow is a limit as the table shows it: how it stands, with what became of the last
// 15 minutes.
type limitRow struct {
	inspect.Limit
	// Row is the last 15 minutes in parts of 10 seconds, the last of which is not over,
	// and From when they begin.
	Row  []tally
	From time.Time
	now  time.Time
}

// maxLooks bounds the meters that are looked at in one turn, which is five calls of
// Redis. Where there are more, limits that less is wanted of go without.
const maxLooks = 500

// rows are the limits, what most of the jobs wait for first.
func (s *state) rows(ctx context.Context, p *Page, jobs int, now time.Time) ([]limitRow, error) {
	known := s.known
	known.Now, known.Lately, known.Wanted = now, inspect.Lately(s.history.recent, now), map[string]inspect.Wanted{}
	for name, w := range s.wants {
		known.Wanted[name] = w.Wanted
	}
	limits, err := s.judge.Limits(ctx, p.Limiter, known, jobs, maxLooks)
	rows := make([]limitRow, len(limits))
	for i, l := range limits {
		rows[i] = limitRow{Limit: l, now: now.Local()}
		rows[i].Row, rows[i].From = s.history.row(l.Name)
	}
	return rows, err
}

// levels is how bad states are, in classes of the style sheet: good, wait, bad or quiet.
var levels = map[inspect.State]string{
	inspect.Paused: "bad", inspect.Blocked: "bad", inspect.NotFull: "bad", inspect.KeysBlocked: "bad",
	inspect.UsedUp: "wait", inspect.WillBeUsedUp: "wait", inspect.Saturated: "wait",
	inspect.Flowing: "good", inspect.Idle: "quiet",
}

// Level is how bad the limit's state is.
func (r limitRow) Level() string { return levels[r.Limit.State] }

// State is how the limit stands in a few words.
func (r limitRow) State() string {
	switch r.Limit.State {
	case inspect.Blocked:
		return "blocked until " + clock(r.Blocks[0].Until, r.now)
	case inspect.KeysBlocked:
		return plural(len(r.Blocks), "key") + " blocked"
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
		if m := r.Any; r.Any.PerSecond == 0 || r.Windowed() {
			return fmt.Sprintf("%s of %s", number(m.Used()), number(m.Capacity))
		}
		return fmt.Sprintf("%s of %s /s", perSecond(r.Permits), perSecond(r.Any.PerSecond))
	}
	text := fmt.Sprintf("%d of %s full", r.Full(), plural(len(r.Meters), "key"))
	if len(r.Meters) < r.Keys {
		text = fmt.Sprintf("%d of %d busiest keys full", r.Full(), len(r.Meters))
	}
	if n := len(r.Blocks); n > 0 {
		text += fmt.Sprintf(", %s blocked", number(n))
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

// says is the answer, before all figures: how many jobs wait, for what, and until when
// the last of them will have run.
type says struct {
	Jobs  int    // that wait or were called
	Chief string // the limit that most wait for
	All   bool   // whether nearly all do: nine of ten
	// Since is when the job that waits longest was denied first, and For how long ago
	// that was, in whole seconds. Both are zero where that is not known.
	Since time.Time
	For   time.Duration
	// Running counts jobs of all queues, also those that need no permits.
	Running int
	// LastIn is how long until the last of all that wait would run, and Last when that
	// is, of those limits of which it can be told.
	LastIn time.Duration
	Last   time.Time
	About  bool // whether that is an estimate
	// Unknown is a limit of which nobody knows when the last runs; empty where there
	// is none.
	Unknown string
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
	s := says{Jobs: k.Crowd.Jobs, Running: k.Queues.Running}
	add := func(level, format string, args ...any) {
		s.Troubles = append(s.Troubles, trouble{level, fmt.Sprintf(format, args...)})
	}
	// First, as it explains all else: jobs come by asynq's polls then, or not at all.
	if k.Crowd.Jobs > 0 && !k.Crowd.Turns {
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
		case row.Spare > 0:
			add("bad", "%s is not full: %s free while jobs wait", row.Name, plural(row.Spare, "permit"))
		case row.Paused:
			add("bad", "%s is paused%s", row.Name, whoPaused(k.Log, row.Name, now))
		case row.Limit.State == inspect.UsedUp:
			add("wait", "%s is used up until %s (%s)", row.Name, clock(now.Add(row.NextIn), now), span(row.NextIn))
		case len(row.Blocks) == 1:
			b := row.Blocks[0]
			add("bad", "%s is blocked until %s%s", meterName(row.Name+"|"+b.Key), clock(b.Until, now), whoBlocked(k.Log, row.Name, b.Key))
		case len(row.Blocks) > 1:
			add("bad", "%s of %s are blocked", plural(len(row.Blocks), "key"), row.Name)
		}
	}
	if len(k.Limits) > 0 && k.Limits[0].Waiting > 0 && s.Jobs > 0 {
		s.Chief = k.Limits[0].Name
		// Permits are held against permits, not jobs.
		s.All = k.Limits[0].Waiting*10 >= waiting*9
	}
	if k.forecast != nil {
		last, unknown := k.forecast.Last()
		s.Last, s.About = k.forecast.At.Add(last.In).In(now.Location()), last.About
		s.LastIn = max(0, s.Last.Sub(now))
		if unknown != nil {
			s.Unknown = unknown.Limit
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

// whoPaused says since when and by whom a limit is paused, if the changelog still knows:
// it remembers the last 500 changes or so of the scope, the newest first.
func whoPaused(log []throttle.Change, limit string, now time.Time) string {
	for _, c := range log {
		if c.What == "paused" && c.Limit == limit {
			return " since " + clock(c.At, now) + by(c.By)
		}
	}
	return ""
}

// whoBlocked says who shut a key, if that is not too long ago: a user, a program, or
// "upstream" where the other side's answer did.
func whoBlocked(log []throttle.Change, limit, key string) string {
	for _, c := range log {
		if c.What == "blocked" && c.Limit == limit && c.Key == key {
			return by(c.By)
		}
	}
	return ""
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + short(who)
}
