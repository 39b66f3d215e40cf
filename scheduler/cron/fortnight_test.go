package cron

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestFortnightOfThreeReplicas runs three replicas of 100 entries for 14
// virtual days, over the clock changes of 2000 in Europe and on Lord Howe
// Island (26 March) and in America (2 April). Every other hour replicas
// restart, crash during a call, stall and see clocks up to five seconds apart;
// calls fail before or after their effect; all replicas are down together; and
// entries are paused, changed and removed. Each tick that the oracle expects must
// be enqueued once, and no other.
func TestFortnightOfThreeReplicas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bubble) {
		time.Sleep(time.Until(time.Date(2000, 3, 22, 0, 2, 30, 0, time.UTC)))
		w := newWorld(b)
		w.run()
		w.check()
	})
}

const fortnight = 14 * 24 * time.Hour

// world is the state of the fortnight. Faults happen two and a half minutes after a
// multiple of five minutes, and all entries tick at such a multiple, so that the
// order of faults and ticks does not depend on the clocks' skew.
type world struct {
	*bubble
	random   *rand.Rand
	begin    time.Time
	replicas []*replica
	operator *replica
	entries  []*life
	happened map[string]int
}

// life is an entry with its history.
type life struct {
	Entry
	index        int
	paused, gone bool
	stretches    []stretch
}

// stretch is a time in which nothing changed for an entry.
type stretch struct {
	line     string
	from, to time.Time
	mode     mode
}

// mode selects the ticks of a stretch that must be enqueued.
type mode int

const (
	running mode = iota // all of them
	away                // paused or removed: none
	outage              // those that the entry's Missed selects
)

// turn ends the stretch at hand and begins another.
func (e *life) turn(down bool) {
	if n := len(e.stretches); n > 0 {
		e.stretches[n-1].to = time.Now()
	}
	next := stretch{line: e.Cron, from: time.Now()}
	switch {
	case e.paused || e.gone:
		next.mode = away
	case down:
		next.mode = outage
	}
	e.stretches = append(e.stretches, next)
}

func newWorld(b *bubble) *world {
	w := &world{bubble: b, random: rand.New(rand.NewPCG(4, 2)), begin: time.Now(), happened: map[string]int{}}
	zones := []string{"", "America/New_York", "Europe/London", "Australia/Lord_Howe"}
	missed := []Missed{MissedSkip, MissedOnce, MissedAll}
	for i := range 100 {
		e := Entry{
			Name: fmt.Sprintf("entry-%03d", i), Cron: w.line(i), Type: "test:tick",
			Zone: zones[i%4], Missed: missed[i%3], MissedMax: 1000,
		}
		w.entries = append(w.entries, &life{Entry: e, index: i})
		w.entries[i].turn(false)
	}
	w.operator = b.replica(nil, w.current()...)
	w.replicas = make([]*replica, 3)
	w.startAll()
	return w
}

// line returns a random cron line. Most tick daily, and few tick often.
func (w *world) line(i int) string {
	minute, hour := 5*w.random.IntN(12), w.random.IntN(24)
	switch {
	case i < 60:
		return fmt.Sprintf("%d %d * * *", minute, hour)
	case i < 75: // in the hours of clock changes
		return fmt.Sprintf("%d,%d 1-2 * * *", minute, (minute+30)%60)
	case i < 85:
		return fmt.Sprintf("%d */4 * * *", minute)
	case i < 90:
		return fmt.Sprintf("%d */2 * * 1-5", minute)
	case i < 96:
		return fmt.Sprintf("%d * * * *", minute)
	case i < 98:
		return "@every 30m"
	default:
		return "*/15 * * * *"
	}
}

// current returns the present entries, as a config file would list them.
func (w *world) current() []Entry {
	var entries []Entry
	for _, e := range w.entries {
		if !e.gone {
			entries = append(entries, e.Entry)
		}
	}
	return entries
}

func (w *world) start(i int) {
	w.replicas[i] = w.bubble.start(func(r *replica) {
		r.random = rand.New(rand.NewPCG(w.random.Uint64(), 0))
		r.faults = 3
		r.lost = w.random.IntN(2) == 0
		r.stall = func(*asynq.Task) time.Duration {
			if r.roll(200) > 0 {
				return 0
			}
			return time.Duration(r.roll(10)) * time.Second
		}
		r.skew = time.Duration(w.random.IntN(5001)-2500) * time.Millisecond
	}, w.current()...)
}

func (w *world) startAll() {
	for i := range w.replicas {
		w.start(i)
	}
}

// wait sleeps a while, then up to the next moment at which nothing ticks.
func (w *world) wait(atLeast time.Duration) {
	at := time.Now().Add(atLeast).Truncate(5 * time.Minute).Add(150 * time.Second)
	if !at.After(time.Now()) {
		at = at.Add(5 * time.Minute)
	}
	time.Sleep(time.Until(at))
}

func (w *world) run() {
	actions := []struct {
		name string
		do   func(*world)
	}{
		{"restart", (*world).restart},
		{"crash", (*world).crash},
		{"crash", (*world).crash},
		{"outage", (*world).outage},
		{"pause or resume", (*world).pause},
		{"change", (*world).change},
		{"remove or bring back", (*world).remove},
	}
	for time.Since(w.begin) < fortnight {
		action := actions[w.random.IntN(len(actions))]
		w.happened[action.name]++
		action.do(w)
		w.wait(time.Duration(w.random.IntN(100)) * time.Minute)
	}
	w.wait(time.Minute)
	for _, r := range w.replicas {
		r.end()
	}
}

func (w *world) restart() {
	i := w.random.IntN(len(w.replicas))
	w.replicas[i].end()
	w.wait(time.Duration(w.random.IntN(60)) * time.Minute)
	w.start(i)
}

// crash lets a replica die in one of the calls of its next ticks.
func (w *world) crash() {
	i := w.random.IntN(len(w.replicas))
	r := w.replicas[i]
	r.dies.Store(r.calls.Load() + 1 + w.random.Int64N(30))
	w.wait(time.Duration(w.random.IntN(90)) * time.Minute)
	r.end()
	w.start(i)
}

// outage is half an hour or more without any replica.
func (w *world) outage() {
	for _, r := range w.replicas {
		r.end()
	}
	for _, e := range w.entries {
		e.turn(true)
	}
	w.wait(time.Duration(30+w.random.IntN(150)) * time.Minute)
	w.startAll()
	for _, e := range w.entries {
		e.turn(false)
	}
}

// some are a few random entries.
func (w *world) some() []*life {
	var some []*life
	for _, i := range w.random.Perm(len(w.entries))[:5] {
		some = append(some, w.entries[i])
	}
	return some
}

func (w *world) pause() {
	for _, e := range w.some() {
		if e.gone {
			continue
		}
		do := w.operator.Pause
		if e.paused {
			do = w.operator.Resume
		}
		if err := do(w.Context(), e.Name); err != nil {
			w.happened["pause tried again"]++
			continue
		}
		e.paused = !e.paused
		e.turn(false)
	}
}

func (w *world) change() {
	for _, e := range w.some() {
		e.Cron = w.line(e.index)
		e.turn(false)
	}
	w.setAll()
}

func (w *world) remove() {
	for _, e := range w.some() {
		e.gone = !e.gone
		e.turn(false)
	}
	w.setAll()
}

// setAll calls Set of all replicas with the present entries, one after the other.
func (w *world) setAll() {
	for _, r := range append([]*replica{w.operator}, w.replicas...) {
		w.must(r.Set(w.current()))
		time.Sleep(time.Duration(w.random.IntN(5000)) * time.Millisecond)
	}
}
