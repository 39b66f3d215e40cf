// Package turnstest records the turns of lanes in a simulation: how long each lane waited between
// two of its turns, and why.
package turnstest

import (
	"fmt"
	"slices"
	"strings"
)

// History records the waits of the lanes in one simulation. With Verbose set it also keeps the events,
// for Story. Times are in microseconds.
type History struct {
	// Verbose keeps the events. A failed simulation is repeated with it.
	Verbose bool
	lanes   map[string]*Lane
	events  []event
}

// Lane is the record of one lane.
type Lane struct {
	Name string
	// Turns is the number of jobs that had their turns.
	Turns int
	// Worst is the longest wait between two turns, WorstAt the time of its end.
	Worst, WorstAt int64
	since          int64 // start of the present wait
	waits, excused bool  // whether a job waits; whether the wait is excused
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

// Lane returns the record of a lane.
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

// Waits records that a lane has got its first job, and begins a wait.
func (h *History) Waits(at int64, lane string) {
	l := h.Lane(lane)
	l.since, l.waits = at, true
	h.Note(at, lane, "gets its first job")
}

// Turn records a turn of a lane's job. The parameter more says whether another job waits.
func (h *History) Turn(at int64, lane, job string, more bool) {
	l := h.Lane(lane)
	wait := l.endWait(at)
	l.Turns++
	l.since, l.waits = at, more
	if h.Verbose {
		h.Note(at, lane, "turn %d after %s: %s%s", l.Turns, span(wait), job, map[bool]string{false: "; nothing waits"}[more])
	}
}

// Excuse ends a lane's wait, for example because its queue is paused, or begins it again.
func (h *History) Excuse(at int64, lane string, excused bool) {
	l := h.Lane(lane)
	if l.excused == excused {
		return
	}
	l.endWait(at)
	l.since, l.excused = at, excused
	h.Note(at, lane, "%s", map[bool]string{true: "cannot be granted, which is excused", false: "can be granted again"}[excused])
}

// End ends all waits at the end of the simulation.
func (h *History) End(at int64) {
	for _, l := range h.lanes {
		l.endWait(at)
	}
}

func (l *Lane) endWait(at int64) int64 {
	if !l.waits || l.excused {
		return 0
	}
	wait := at - l.since
	if wait > l.Worst {
		l.Worst, l.WorstAt = wait, at
	}
	return wait
}

// Note adds an event. An event without a lane belongs to all lanes.
func (h *History) Note(at int64, lane, format string, args ...any) {
	if h.Verbose {
		h.events = append(h.events, event{at, lane, nil, fmt.Sprintf(format, args...)})
	}
}

// NoteOf adds an event of a job. Equal events of several jobs at one time become one line.
func (h *History) NoteOf(at int64, lane, job, format string, args ...any) {
	if !h.Verbose {
		return
	}
	e := event{at, lane, []string{job}, fmt.Sprintf(format, args...)}
	if last := len(h.events) - 1; last >= 0 {
		if previous := &h.events[last]; previous.at == at && previous.lane == lane && previous.text == e.text && previous.jobs != nil {
			previous.jobs = append(previous.jobs, job)
			return
		}
	}
	h.events = append(h.events, e)
}

// Story returns the last events of the given lanes between two times, one on each line. No lanes
// means all lanes.
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

// span formats a time in seconds.
func span(us int64) string { return fmt.Sprintf("%.6f s", float64(us)/1e6) }
