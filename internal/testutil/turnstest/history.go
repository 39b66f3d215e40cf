// Package turnstest keeps the history of lanes that take turns: how long each
// waited between two of them, and, told as a story, why.
package turnstest

import (
	"fmt"
	"slices"
	"strings"
)

// History is what happened in one simulation. Its zero value records waits; with
// Tell set it keeps the events for a story too. Times are microseconds.
type History struct {
	// Tell has the history keep its events. A simulation that fails is run again
	// with it.
	Tell   bool
	lanes  map[string]*Lane
	events []event
}

// Lane is what a history knows of one lane.
type Lane struct {
	Name string
	// Turns is how many of its jobs had theirs.
	Turns int
	// Worst is its longest wait between two turns, and WorstAt when that ended.
	Worst, WorstAt int64
	since          int64
	waits, excused bool
}

type event struct {
	at   int64
	lane string
	jobs []string
	text string
}

func (e event) String() string {
	jobs := strings.Join(e.jobs, ", ")
	if jobs != "" {
		jobs += " "
	}
	return fmt.Sprintf("%12s  %-24s %s%s", span(e.at), strings.ReplaceAll(e.lane, "\n", " "), jobs, e.text)
}

// Lane returns what is known of a lane.
func (h *History) Lane(name string) *Lane {
	l := h.lanes[name]
	if l == nil {
		if h.lanes == nil {
			h.lanes = map[string]*Lane{}
		}
		l = &Lane{Name: name}
		h.lanes[name] = l
	}
	return l
}

// Waits says that a lane got its first job.
func (h *History) Waits(at int64, lane string) {
	l := h.Lane(lane)
	l.since, l.waits = at, true
	h.Note(at, lane, "gets its first job")
}

// Turn says that a job of a lane had its turn, and whether another waits.
func (h *History) Turn(at int64, lane, job string, more bool) {
	l := h.Lane(lane)
	wait := l.end(at)
	l.Turns++
	l.since, l.waits = at, more
	if h.Tell {
		h.Note(at, lane, "turn %d after %s: %s%s", l.Turns, span(wait), job, map[bool]string{false: "; nothing waits"}[more])
	}
}

// Excuse says that from now on a lane's wait is nobody's fault, or is again: its
// queue takes nothing, or its limit is paused.
func (h *History) Excuse(at int64, lane string, excused bool) {
	l := h.Lane(lane)
	if l.excused == excused {
		return
	}
	l.end(at)
	l.since, l.excused = at, excused
	h.Note(at, lane, "%s", map[bool]string{true: "cannot be called, which is nobody's fault", false: "could be called again"}[excused])
}

// End closes the waits that last.
func (h *History) End(at int64) {
	for _, l := range h.lanes {
		l.end(at)
	}
}

func (l *Lane) end(at int64) int64 {
	if !l.waits || l.excused {
		return 0
	}
	wait := at - l.since
	if wait > l.Worst {
		l.Worst, l.WorstAt = wait, at
	}
	return wait
}

// Note adds to the story; an event without a lane belongs to all.
func (h *History) Note(at int64, lane, format string, args ...any) {
	if h.Tell {
		h.events = append(h.events, event{at, lane, nil, fmt.Sprintf(format, args...)})
	}
}

// NoteOf adds what happens to a job of a lane. Where the same happens to several at
// a time the story says so in one line.
func (h *History) NoteOf(at int64, lane, job, format string, args ...any) {
	if !h.Tell {
		return
	}
	e := event{at, lane, []string{job}, fmt.Sprintf(format, args...)}
	if last := len(h.events) - 1; last >= 0 {
		if o := &h.events[last]; o.at == at && o.lane == lane && o.text == e.text && o.jobs != nil {
			o.jobs = append(o.jobs, job)
			return
		}
	}
	h.events = append(h.events, e)
}

// Story is what happened to some lanes from one time to another, the last lines
// of it if it is long. Without lanes it is what happened to all.
func (h *History) Story(from, to int64, lines int, lanes ...string) string {
	var story []string
	for _, e := range h.events {
		if e.at < from || e.at > to || len(lanes) > 0 && e.lane != "" && !slices.Contains(lanes, e.lane) {
			continue
		}
		story = append(story, e.String())
	}
	if cut := len(story) - lines; cut > 0 {
		story = slices.Insert(story[cut:], 0, fmt.Sprintf("… %d lines before", cut))
	}
	return strings.Join(story, "\n")
}

// span is a time as people read it, in seconds.
func span(us int64) string { return fmt.Sprintf("%.6f s", float64(us)/1e6) }
