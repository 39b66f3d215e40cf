package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/script"
)

// simBreak is a promise that broke, and where to look for why: at some lanes, from
// one time to another.
type simBreak struct {
	promise  string // the same for all that break it
	text     string
	lanes    []*simLane
	from, to int64
}

func (w *sim) breaks(lanes []*simLane, from, to int64, format string, args ...any) {
	b := simBreak{format, fmt.Sprintf(format, args...), lanes, from, to}
	w.broken = append(w.broken, b)
	w.history.Note(to, "", "BREAKS: %s", b.text)
}

// breaksFor is for a promise to one job: what led to it began when that came, and
// ended with what happened to it last.
func (w *sim) breaksFor(id, format string, args ...any) {
	job := w.jobs[id]
	w.breaks(w.near(job.lane), job.came, job.last, "%s of %s: "+format, append([]any{shown(id), job.lane.name}, args...)...)
}

// near lists the lanes that share a meter with one, and that one.
func (w *sim) near(l *simLane) (lanes []*simLane) {
	for _, need := range l.parsed {
		lanes = append(lanes, w.lanesAt(need.Limit+"|"+need.Key)...)
	}
	return lanes
}

// lanesAt lists the lanes that need a meter.
func (w *sim) lanesAt(meter string) (lanes []*simLane) {
	for _, l := range w.lanes {
		for _, need := range l.parsed {
			if need.Limit+"|"+need.Key == meter {
				lanes = append(lanes, l)
			}
		}
	}
	return lanes
}

// tell notes what happens to a job.
func (w *sim) tell(id, format string, args ...any) {
	job := w.jobs[id]
	job.last = w.now()
	w.history.NoteOf(job.last, job.lane.name, shown(id), format, args...)
}

// shown is the ID of a job on one line.
func shown(id string) string { return strings.Trim(strconv.Quote(id), `"`) }

// story tells which promises broke, in which world, and how it came to the first.
func (w *sim) story() string {
	var s strings.Builder
	for i, b := range w.broken {
		if i == 10 {
			fmt.Fprintf(&s, "  and %d more\n", len(w.broken)-i)
			break
		}
		fmt.Fprintf(&s, "  %s\n", b.text)
	}
	fmt.Fprintf(&s, "a world of %s; %d processes of %d workers\n", w.simIngredients, len(w.processes), w.config.Concurrency)
	for _, l := range w.limits {
		fmt.Fprintf(&s, "  limit %s: %s\n", l.Name, l)
	}
	for _, l := range w.lanes {
		fmt.Fprintf(&s, "  %s: queue %s, needs %v, its jobs take %s\n", l.name, l.queue, l.parsed, l.takes)
	}
	for _, c := range w.direct {
		fmt.Fprintf(&s, "  a caller %s\n", c)
	}
	for _, e := range w.events {
		fmt.Fprintf(&s, "  after %s: %s\n", e.at.Sub(w.began), e.text)
	}
	b := slices.MinFunc(w.broken, func(a, b simBreak) int { return int(a.to - b.to) })
	var lanes []string
	for _, l := range b.lanes {
		lanes = append(lanes, l.name)
	}
	const before = 2_000_000 // what was when it began
	fmt.Fprintf(&s, "how it came to this: %s\n", b.text)
	return s.String() + w.history.Story(b.from-before, b.to, 150, lanes...)
}

// line tells which promises broke, each once.
func (w *sim) line() string {
	var texts []string
	broken := map[string]bool{}
	for _, b := range w.broken {
		if !broken[b.promise] {
			texts = append(texts, b.text)
		}
		broken[b.promise] = true
	}
	return strings.Join(texts, "; ")
}

// A teller notes what a process does for the lanes: the turns that it gives, since
// when it does, and whose workers it takes for dead.
type teller struct {
	w *sim
	p *simProcess
}

func (t *teller) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	err := next(ctx, cmd)
	args := cmd.Args()
	answer, ok := cmd.(*redis.Cmd)
	if err != nil || !ok || !strings.HasPrefix(cmd.Name(), "eval") {
		return err
	}
	text := fmt.Sprint(args[1]) // or its hash
	reply, _ := answer.Slice()
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	switch {
	case text == script.New("lanes/become_leader").Hash() || strings.HasPrefix(text, "-- Takes or renews the lease"):
		if len(reply) > 2 && reply[1] == int64(1) {
			t.w.history.Note(t.w.now(), "", "process %d gives turns", t.p.index)
		}
	case text == script.New("lanes/grant").Hash() || strings.HasPrefix(text, "-- Gives lanes their turns"):
		t.turns(args[9:], reply)
	case text == script.New("asynq/crash").Hash() || strings.HasPrefix(text, "-- Puts a job back whose worker died"):
		t.w.crashed(fmt.Sprint(args[7]))
	}
	return nil
}

// turns notes what became of turns: lane, ahead, held for each, and for each the
// outcome, the job, and from when and until when permits are reserved; then for each
// lane how many are called, and of each meter six numbers, when it is ready second.
func (t *teller) turns(args []any, reply []any) {
	if len(reply) < 2 || reply[0] == int64(-1) { // another process gives turns, or these were given
		return
	}
	now, all := reply[0].(int64), len(args)/3
	var lanes []string
	for i := range all {
		if name := args[3*i].(string); !slices.Contains(lanes, name) {
			lanes = append(lanes, name)
		}
	}
	for i := range all {
		name, turn := args[3*i].(string), reply[2+i].([]any)
		switch fairqueue.Outcome(turn[0].(int64)) {
		case fairqueue.Granted:
			if t.w.turned = append(t.w.turned, simTurn{name, true}); time.Now().Before(t.w.calm) {
				t.w.turned = append(t.w.turned, simTurn{})
			}
			t.w.jobs[turn[1].(string)].waits = ""
			t.w.tell(turn[1].(string), "called: all permits are reserved, and exist in %s", time.Duration(turn[2].(int64)-now)*time.Microsecond)
		case fairqueue.Refused:
			next, missing := reply[2+all+slices.Index(lanes, name)].([]any), ""
			for k, meter := range fairqueue.Meters(name) {
				if at := 2 + 6*k; at < len(next) && next[at].(int64) > now {
					missing += fmt.Sprintf("; %s is ready in %s", meter, time.Duration(next[at].(int64)-now)*time.Microsecond)
				}
			}
			t.w.history.Note(t.w.now(), t.w.laneOf(name), "has a turn in vain (older lanes hold %s)%s", args[3*i+2], missing)
		case fairqueue.Full:
			t.w.turned = append(t.w.turned, simTurn{})
			t.w.history.Note(t.w.now(), t.w.laneOf(name), "is passed over: as many of its jobs are on their way as its meters give")
		}
	}
}

// laneOf is the lane that the limiter knows by a name: several, if they need other
// numbers of the same permits.
func (w *sim) laneOf(name string) string {
	for _, l := range w.lanes {
		if l.is(fairqueue.Queue(name), fairqueue.Meters(name)) {
			return l.name
		}
	}
	return ""
}

// is reports whether the limiter knows a lane by a queue and meters.
func (l *simLane) is(queue string, meters []string) bool {
	same := l.queue == queue && len(l.parsed) == len(meters)
	for _, meter := range l.meters() {
		same = same && slices.Contains(meters, meter)
	}
	return same
}

func (l *simLane) meters() (meters []string) {
	for _, need := range l.parsed {
		meters = append(meters, need.Limit+"|"+need.Key)
	}
	return meters
}
