package scheduler

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/script"
)

// simBreak is a promise that broke, and where to look for why: at some lanes, from one time to
// another.
type simBreak struct {
	text     string
	lanes    []*simLane
	from, to int64
}

func (w *sim) breaks(lanes []*simLane, from, to int64, format string, args ...any) {
	b := simBreak{fmt.Sprintf(format, args...), lanes, from, to}
	w.broken = append(w.broken, b)
	w.history.Note(to, "", "BREAKS: %s", b.text)
	if os.Getenv(withoutEnv) != "" { // one is enough: see takeOut
		w.t.Error(b.text)
	}
}

// breaksFor is for a promise to one job: what led to it began when the job was enqueued, and ended
// with what happened to the job last.
func (w *sim) breaksFor(id, format string, args ...any) {
	job := w.jobs[id]
	w.breaks(w.sharing(job.lane), job.came, job.last, "%s of %s: "+format, append([]any{shown(id), job.lane.name}, args...)...)
}

// sharing lists the lanes that share a meter with a lane, and the lane itself.
func (w *sim) sharing(l *simLane) (lanes []*simLane) {
	for _, need := range l.needs {
		lanes = append(lanes, w.lanesAtMeter(need.Limit+"|"+need.Key)...)
	}
	return lanes
}

// lanesAtMeter lists the lanes that need a meter.
func (w *sim) lanesAtMeter(meter string) (lanes []*simLane) {
	for _, l := range w.lanes {
		for _, need := range l.needs {
			if need.Limit+"|"+need.Key == meter {
				lanes = append(lanes, l)
			}
		}
	}
	return lanes
}

// noteJob notes what happens to a job.
func (w *sim) noteJob(id, format string, args ...any) {
	job := w.jobs[id]
	job.last = w.now()
	w.history.NoteOf(job.last, job.lane.name, shown(id), format, args...)
}

// shown is the ID of a job on one line.
func shown(id string) string { return strings.Trim(strconv.Quote(id), `"`) }

// story returns which promises broke, in which world, and how it came to the first.
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
		fmt.Fprintf(&s, "  %s: queue %s, needs %v, its jobs take %s\n", l.name, l.queue, l.needs, l.takes)
	}
	for _, c := range w.callers {
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

// scribe notes what a process does for the lanes: when it becomes the leader, the turns that it
// gives, and which jobs it takes for jobs of dead workers.
type scribe struct {
	w *sim
	p *simProcess
}

func (t *scribe) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
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
			t.w.history.Note(t.w.now(), "", "process %d leads", t.p.index)
		}
	case text == script.New("lanes/grant").Hash() || strings.HasPrefix(text, "-- Gives lanes their turns"):
		t.turns(args[8:], reply)
	case text == script.New("asynq/crash").Hash() || strings.HasPrefix(text, "-- Retries a job whose worker has crashed"):
		t.w.judgeCrash(fmt.Sprint(args[7]))
	}
	return nil
}

// turns notes what became of turns. args are the lane, the advance and the held permits of each.
// reply has the outcome of each, its job, and from when and until when permits are reserved.
func (t *scribe) turns(args []any, reply []any) {
	if len(reply) < 2 || reply[0] == int64(-1) { // another process leads, or these turns were given
		return
	}
	now, all := reply[0].(int64), len(args)/3
	for i := range all {
		name, turn := args[3*i].(string), reply[2+i].([]any)
		switch fairqueue.Outcome(turn[0].(int64)) {
		case fairqueue.Granted:
			t.w.jobs[turn[1].(string)].waits = ""
			t.w.noteJob(turn[1].(string), "granted: all permits are reserved, and exist in %s", time.Duration(turn[2].(int64)-now)*time.Microsecond)
		case fairqueue.Refused:
			t.w.history.Note(t.w.now(), t.w.laneOf(name), "has a turn in vain (older lanes hold %s)", args[3*i+2])
		case fairqueue.Full:
			t.w.history.Note(t.w.now(), t.w.laneOf(name), "is passed over: as many of its jobs are granted as its meters give")
		}
	}
}

// laneOf is the lane that the limiter has under a name, or the first of several that differ in
// costs only.
func (w *sim) laneOf(name string) string {
	for _, l := range w.lanes {
		if l.is(fairqueue.Queue(name), fairqueue.Meters(name)) {
			return l.name
		}
	}
	return ""
}

// is reports whether a lane has a queue and meters.
func (l *simLane) is(queue string, meters []string) bool {
	same := l.queue == queue && len(l.needs) == len(meters)
	for _, meter := range l.meters() {
		same = same && slices.Contains(meters, meter)
	}
	return same
}

func (l *simLane) meters() (meters []string) {
	for _, need := range l.needs {
		meters = append(meters, need.Limit+"|"+need.Key)
	}
	return meters
}
