package fairqueue

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/testutil/turnstest"
)

// world is everything around a core, in memory: meters that admit, jobs that
// wait, asynq's queues and the loop. What a script does is one call here.
type simulation struct {
	core    *Core
	history turnstest.History
	rand    *rand.Rand
	now     int64
	number  int64
	meters  map[string]*simMeter
	lanes   []*simLane
	byName  map[string]*simLane
	queues  map[string]*simQueue
	events  []simEvent
	broken  string
	// contended are the meters that give through turns only.
	contended map[string]int
	// latency is how long a promoted job takes to arrive, at most; careless is how many
	// jobs in a thousand are promoted in vain, arrive late, or are deleted.
	latency   int64
	faultRate int
	figures
}

// figures counts the result of turns, and the jobs that arrived too late.
type figures struct{ batches, granted, refused, skipped, full, denied int }

func (f *figures) add(o figures) {
	f.batches += o.batches
	f.granted += o.granted
	f.refused += o.refused
	f.skipped += o.skipped
	f.full += o.full
	f.denied += o.denied
}

func (f figures) String() string {
	return fmt.Sprintf("%d turns; %d more were refused, %d skipped, %d of full lanes; %d jobs arrived too late", f.granted, f.refused, f.skipped, f.full, f.denied)
}

type simLane struct {
	name, queue string
	key         string // for which it takes turns by weight
	weight      int64
	in          *simQueue
	needs       []simNeed
	// waiting is how many jobs wait, made how many there ever were.
	waiting, made int
	granted       []simGrant
	idleSince     int64
	since         int64 // when it got its first job
	done          int
	// last is how many turns all had had when it had its last; gap is how many they had
	// between two of its own at most.
	last, gap int
	number    int64
	where     string
}

type simNeed struct {
	*simMeter
	cost int64
}

// worldCall is a granted job: its permits exist from a time and are reserved until
// another, 0 if nothing is any more.
type simGrant struct {
	id        string
	at, until int64
	pending   bool
}

type simQueue struct {
	stopped bool
	resumed int64
	// passedOver reports that the core passes its lanes over, since a time.
	passedOver bool
	since      int64
	pending    []func()
	Weight
}

type simEvent struct {
	at int64
	do func()
}

const grantLife = 250_000

func newSimulation(seed uint64) *simulation {
	return &simulation{
		core: New(), now: 1, rand: rand.New(rand.NewPCG(seed, 1)),
		meters: map[string]*simMeter{}, byName: map[string]*simLane{}, queues: map[string]*simQueue{}, contended: map[string]int{},
	}
}

func (w *simulation) meter(m simMeter) *simMeter {
	m.name += "|"
	w.meters[m.name] = &m
	return &m
}

// lane adds a lane. Its needs are "meter" or "meter cost", any number of them.
func (w *simulation) lane(queue string, needs ...simNeed) *simLane {
	return w.fairLane(queue, "", 1, needs...)
}

// fairLane adds a lane of a fairness key.
func (w *simulation) fairLane(queue, key string, weight int64, needs ...simNeed) *simLane {
	slices.SortFunc(needs, func(a, b simNeed) int { return cmp.Compare(a.name, b.name) })
	meters := make([]string, len(needs))
	for i, n := range needs {
		meters[i] = n.name
	}
	name := Lane(queue, meters, FairnessLine(key, int(weight)))
	if there := w.byName[name]; there != nil {
		return there
	}
	if w.queues[queue] == nil {
		w.queues[queue] = &simQueue{Weight: Weight{Turns: 1}}
	}
	l := &simLane{queue: queue, key: key, weight: weight, in: w.queues[queue], needs: needs, name: name, idleSince: never}
	w.lanes = append(w.lanes, l)
	w.byName[l.name] = l
	return l
}

// weigh sets how some queues take turns from now on. The others keep their weights, and the
// core gets all weights, as by a server that starts.
func (w *simulation) weigh(strict bool, weights map[string]int) {
	for queue, turns := range weights {
		w.queues[queue].Weight = Weight{turns, strict}
	}
	w.core.SetWeights(w.weights())
}

func (w *simulation) weights() map[string]Weight {
	all := map[string]Weight{}
	for name, q := range w.queues {
		all[name] = q.Weight
	}
	return all
}

// at has something happen at a time, or now if that is over.
func (w *simulation) at(at int64, do func()) {
	at = max(at, w.now)
	i, _ := slices.BinarySearchFunc(w.events, at, func(e simEvent, at int64) int {
		if e.at <= at {
			return -1
		}
		return 1
	})
	w.events = slices.Insert(w.events, i, simEvent{at, do})
}

// breaks notes the first rule that broke.
func (w *simulation) breaks(lane *simLane, format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf("at %.6f s, %s: %s", float64(w.now)/1e6, strings.ReplaceAll(lane.name, "\n", " "), fmt.Sprintf(format, args...))
		w.history.Note(w.now, lane.name, "BREAKS: %s", fmt.Sprintf(format, args...))
	}
}

// run lets time pass until all is done, or a time.
func (w *simulation) run(until int64) {
	for w.broken == "" {
		w.settle()
		next := min(w.core.Next(w.now), until)
		if len(w.events) > 0 {
			next = min(next, w.events[0].at)
		}
		w.passes(next)
		if w.now >= until {
			break
		}
		for len(w.events) > 0 && w.events[0].at <= w.now {
			e := w.events[0]
			w.events = w.events[1:]
			e.do()
		}
	}
	w.history.End(w.now)
}

// settle is the loop around the core, once.
func (w *simulation) settle() {
	restless := 0
	for w.core.Next(w.now) <= w.now {
		for turns := w.core.Turns(w.now, 64); len(turns) > 0; turns = w.core.Turns(w.now, 64) {
			results := w.grant(turns)
			if w.faultRate > 0 && w.rand.IntN(1000) < w.faultRate {
				w.history.Note(w.now, "", "the answer to %d turns is lost", len(turns))
				results = nil
			}
			w.core.ApplyResults(w.now, results)
			if restless++; restless > 10_000 {
				w.breaks(&simLane{}, "the core never rests")
				return
			}
		}
		for _, job := range w.core.ToPromote(w.now, 100) {
			w.core.Promoted(w.now, job, w.promote(job))
		}
		for _, lane := range w.core.ToExpire(w.now, 100) {
			w.expire(lane)
		}
	}
	w.where()
	maps.Copy(w.contended, w.core.Sharing(w.now))
}
