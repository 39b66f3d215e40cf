package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// limitRow is a limit as the table shows it: what it says, what waits for it, how its
// meters stand, and what became of the last 15 minutes, with a word for all that.
type limitRow struct {
	throttle.Limit
	// By is what it counts by, as Options.KeyOf says, and Keyed whether it has keys at
	// all. Where KeyOf does not know the limit By is empty, and Keyed goes by what waits
	// and is blocked: a limit with keys that nobody wants looks like one without.
	By    string
	Keyed bool
	// Waiting is how many permits are waited for here, and Wanted how many are wanted
	// at all, by jobs that need this limit and wait for another first, too.
	Waiting int
	Wanted  int
	Keys    int       // that anything waits for
	Since   time.Time // the job that waits longest here, if that is known
	// Passing is whether nothing had waited here for long when that was looked at: a
	// job is denied for a moment where others have the turn, and comes at once.
	Passing bool
	// Flows is whether those that pass find permits, now or a turn ago.
	Flows bool
	// Meters are its only one, or those of the busiest keys. It has
	// none where no key is wanted, or maxLooks were looked at before it.
	Meters []throttle.Meter
	Blocks []throttle.Blocked // those that open first in front
	// Rate is how many permits a second all its keys gave in the last whole seconds.
	Rate float64
	// Row is the last 15 minutes in parts of 10 seconds, the last of which is not over,
	// and From when they begin.
	Row  []tally
	From time.Time
	// NextIn is how long until the next permit of any of Meters: an estimate unless Known.
	NextIn time.Duration
	Known  bool
	// LastIn is how long until the last job runs that waits and needs the limit,
	// whatever else it waits for, as the forecast says. It means nothing unless LastKnown,
	// and is an estimate if About.
	LastIn           time.Duration
	LastKnown, About bool
	// Binds is whether jobs wait longest for this limit, or will.
	Binds bool
	Spare int // permits that have been there for some time, while jobs wait
	// State is a word or a few for all that, and Level how bad it is: good, wait, bad
	// or quiet, which are classes of the style sheet.
	State string
	Level string
	// Fill is how full the limit is, from 0 to 1, of several keys their mean; Used says
	// the same in words, and with keys how many of them are full.
	Fill float64
	Used string
}

// busiest is how many keys of a limit are looked at in each turn: those that most permits
// are wanted of. They tell of a limit with a million keys whether those that most wait for
// are full.
const busiest = 5

// maxLooks bounds the meters that are looked at in one turn, which is four calls of
// Redis. Where there are more, limits that less is wanted of go without.
const maxLooks = 400

// rows are the limits, what most of the jobs wait for first. They are sorted twice:
// before the look, which begins with what matters most, and after explain, which may
// find that fewer wait at a limit than its marks say.
//
// Since comes from the survey, so it may be some seconds behind what waits, and a limit
// that jobs have only just begun to wait for has none.
func (s *state) rows(ctx context.Context, p *Page, jobs int, now time.Time) ([]limitRow, error) {
	rows, lasts := make([]limitRow, 0, len(s.limits)), map[string]lanes.Expected{}
	var binding []throttle.Need
	if s.forecast != nil {
		lasts, binding = s.forecast.Limits(), s.forecast.Binding()
	}
	for _, l := range s.limits {
		row := limitRow{Limit: l, Blocks: stillShut(s.blocks[l.Name], now), Rate: s.history.now(l.Name, now)}
		row.Row, row.From = s.history.row(l.Name)
		if f, needed := lasts[l.Name]; needed {
			row.LastIn, row.LastKnown, row.About = max(0, s.forecast.At.Add(f.In).Sub(now)), f.Known, f.About
			row.Binds = slices.ContainsFunc(binding, func(n throttle.Need) bool { return n.Limit == l.Name })
		}
		if w := s.wants[l.Name]; w != nil {
			row.Waiting, row.Wanted, row.Keys = w.Here, w.Permits, len(w.Keys)
			if found := s.survey.Limits[l.Name]; row.Waiting > 0 && found.Jobs > 0 {
				row.Since = found.Oldest
			}
			row.Passing = !s.survey.At.IsZero() && (row.Since.IsZero() || s.survey.At.Sub(row.Since) < spareTurns*turn)
			row.Keyed = len(w.Keys) > 1 || w.Keys[0].Key != ""
		}
		// A block of a key says that there are keys, also when nobody waits for one.
		row.Keyed = row.Keyed || slices.ContainsFunc(row.Blocks, func(b throttle.Blocked) bool { return b.Key != "" })
		// The config knows better than what happens to wait just now.
		if p.KeyOf != nil {
			if by, known := p.KeyOf(l.Name); known {
				row.By, row.Keyed = by, by != ""
			}
		}
		rows = append(rows, row)
	}
	sortRows(rows)
	if err := s.look(ctx, p, rows); err != nil {
		return nil, err
	}
	s.explain(rows, jobs)
	for i := range rows {
		rows[i].judge(now)
	}
	sortRows(rows)
	return rows, nil
}

// sortRows puts what most waits for first. Its name decides last, so that rows which
// are alike do not change places from turn to turn.
func sortRows(rows []limitRow) {
	slices.SortStableFunc(rows, func(a, b limitRow) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Wanted, a.Wanted), strings.Compare(a.Name, b.Name))
	})
}

// spareTurns is for how many turns permits must be there while jobs wait before
// that is said: for a moment they are there each time one comes.
const spareTurns = 3

// explain says of which limits that have permits jobs wait all the same. A job that
// needs several waits for one that has none: only those that no such limit accounts
// for wait for one that has some. Where the full limits account for all, the other is
// said to have none waiting, and its jobs are told of at the limits they wait for.
//
// One turn with permits proves nothing, nor one without: a limit that had some in the
// turn before counts as having some, and is called not full after three in a row. Nor
// does what waits for a moment: a limit where nothing else does counts as having some.
func (s *state) explain(rows []limitRow, jobs int) {
	free := map[string]int{}
	for i := range rows {
		row := &rows[i]
		n := row.free()
		full := n == 0 && s.free[row.Name] == 0 || row.Binds
		row.Flows = row.Passing && !full
		if full && !row.Passing || row.Waiting == 0 {
			jobs -= row.Waiting
			continue
		}
		free[row.Name] = n
	}
	spared := map[string]int{}
	for i := range rows {
		row := &rows[i]
		n, ok := free[row.Name]
		if !ok {
			continue
		}
		// What the full limits leave over is all that can wait for this one.
		if row.Waiting = max(0, min(row.Waiting, jobs)); row.Waiting == 0 {
			row.Since = time.Time{}
			continue
		}
		if n > 0 && !row.Passing {
			spared[row.Name] = s.spared[row.Name] + 1
		}
		if spared[row.Name] >= spareTurns {
			row.Spare = n
		}
	}
	// Limits that are not among them begin anew when they have permits again.
	s.free, s.spared = free, spared
}

// free is how many permits the limit has for those that want some, if each of its
// meters that was looked at has any: one full key is reason enough for jobs to wait.
// What is reserved for called jobs is not free.
func (r *limitRow) free() (n int) {
	for _, m := range r.Meters {
		here := m.Left - m.Reserved
		if m.Shut || m.NextIn > 0 || here <= 0 {
			return 0
		}
		n += here
	}
	return n
}

// look asks how the rows' meters stand, a hundred in a call, since Redis does nothing
// else meanwhile. A limit that was deleted since it was read gets none.
func (s *state) look(ctx context.Context, p *Page, rows []limitRow) error {
	var needs []throttle.Need
	var of []int
	for i, row := range rows {
		// A limit without keys has the meter of the empty key, also when nothing waits.
		keys := []lanes.Want{{Limit: row.Name}}
		if row.Keyed {
			keys = nil
			if w := s.wants[row.Name]; w != nil {
				keys = w.Keys[:min(busiest, len(w.Keys))]
			}
		}
		for _, k := range keys {
			if len(needs) < maxLooks {
				needs, of = append(needs, throttle.Need{Limit: row.Name, Key: k.Key}), append(of, i)
			}
		}
	}
	for start := 0; start < len(needs); start += 100 {
		end := min(start+100, len(needs))
		meters, err := p.Limiter.Look(ctx, needs[start:end]...)
		if err != nil {
			return err
		}
		// A capacity of 0 is a limit that does not exist any more.
		for j, m := range meters {
			if row := &rows[of[start+j]]; m.Capacity > 0 {
				row.Meters = append(row.Meters, m)
			}
		}
	}
	return nil
}

// stillShut are the blocks that have not ended: they are read anew only after a change.
func stillShut(blocks []throttle.Blocked, now time.Time) []throttle.Blocked {
	return blocks[sort.Search(len(blocks), func(i int) bool { return blocks[i].Until.After(now) }):]
}

// judge says how the limit stands, in numbers and in a word. What an operator would do
// something about comes first: a pause, a block of all, what waits, blocks of single
// keys; then whether it is in use. "Used up" is a limit without keys that has nothing
// left for more than a minute, "saturated" one that gives all it has to those who wait,
// which is what limits are for, and so no trouble. It comes after explain and look, of
// which it takes Spare and Meters.
func (r *limitRow) judge(now time.Time) {
	// One meter of which nobody knows makes the limit's last permit unknown.
	r.Known = len(r.Meters) > 0
	for i, m := range r.Meters {
		if i == 0 || m.NextIn < r.NextIn {
			r.NextIn = m.NextIn
		}
		r.Known = r.Known && m.Known
	}
	r.fill()
	switch blocked := len(r.Blocks); {
	case r.Paused:
		r.State, r.Level = "paused", "bad"
	// Of a limit without keys the one that is blocked is the empty one: all of it.
	case blocked > 0 && !r.Keyed:
		r.State, r.Level = "blocked until "+clock(r.Blocks[0].Until, now.Local()), "bad"
	case r.Waiting > 0 && r.windowed() && !r.Keyed && r.Fill >= 1 && r.NextIn > time.Minute:
		r.State, r.Level = "used up", "wait"
	case r.Spare > 0:
		r.State, r.Level = "not full", "bad"
	case r.Waiting > 0 && r.Binds && !r.Keyed && r.windowed() && r.Fill < 1:
		r.State, r.Level = "will be used up", "wait"
	case r.Waiting > 0 && !r.Flows:
		r.State, r.Level = "saturated", "wait"
	case blocked > 0:
		r.State, r.Level = plural(blocked, "key")+" blocked", "bad"
	case r.Rate > 0 || r.Waiting > 0:
		r.State, r.Level = "flowing", "good"
	case !r.Keyed && r.Fill >= 1 && r.NextIn > time.Minute:
		r.State, r.Level = "used up", "wait"
	default:
		r.State, r.Level = "idle", "quiet"
	}
}

// windowed reports whether the limit counts what was taken in a period.
func (r *limitRow) windowed() bool {
	return r.Kind == throttle.FixedWindow || r.Kind == throttle.SlidingLog || r.Kind == throttle.SlidingWindow
}

// Allowed is how many permits a second a meter of the limit gives in the long run; 0 of
// a concurrency limit, for which that is not a matter of time. Keys with a rate of their
// own are not asked.
func (r *limitRow) Allowed() float64 {
	if r.Limit.Rate.Per <= 0 {
		return 0
	}
	return float64(r.Limit.Rate.N) / (r.Limit.Rate.Per + r.margin()).Seconds()
}

// margin is by how much the limit's period is longer than it says. A fixed window opens
// later and closes earlier, which does not make it give less in a period.
func (r *limitRow) margin() time.Duration {
	if r.Kind == throttle.FixedWindow {
		return 0
	}
	return r.Margin
}

// fill says how full the limit is: of a window or of slots, what is taken; of a
// funnel, whose permits come one by one, how fast they are taken: where it gives one at
// a time, what is taken would jump between all and nothing.
func (r *limitRow) fill() {
	if len(r.Meters) == 0 {
		if r.Keyed {
			r.Used = "no key waits"
		}
		return
	}
	full, shut, share := 0, "", 0.0
	for _, m := range r.Meters {
		share += float64(m.Used()) / float64(m.Capacity)
		if m.Used() == m.Capacity {
			full++
		}
	}
	if n := len(r.Blocks); n > 0 {
		shut = fmt.Sprintf(", %s blocked", number(n))
	}
	r.Fill = share / float64(len(r.Meters))
	switch m := r.Meters[0]; {
	case r.Keyed && len(r.Meters) < r.Keys:
		r.Used = fmt.Sprintf("%d of %d busiest keys full%s", full, len(r.Meters), shut)
	case r.Keyed:
		r.Used = fmt.Sprintf("%d of %s full%s", full, plural(len(r.Meters), "key"), shut)
	case r.windowed() || r.Kind == throttle.Concurrency:
		r.Used = fmt.Sprintf("%s of %s", number(m.Used()), number(m.Capacity))
	default:
		r.Fill = min(r.Rate/r.Allowed(), 1)
		r.Used = fmt.Sprintf("%s of %s /s", perSecond(r.Rate), perSecond(r.Allowed()))
	}
}

// Rule is what the limit is in a few words, as Limit.String writes it, but for the pause,
// which the row says elsewhere.
func (r *limitRow) Rule() string {
	l := r.Limit
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
		case row.State == "used up":
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

// by is the end of a sentence, if anybody is known to have done it.
func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + short(who)
}
