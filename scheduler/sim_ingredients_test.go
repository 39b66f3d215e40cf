package scheduler

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// ingredient is something that only some worlds have.
type ingredient string

const (
	costs       ingredient = "costs"       // the jobs of one lane cost from 1 to all that its limits give at once
	settles     ingredient = "settles"     // handlers settle, several times and while others do
	answers     ingredient = "answers"     // handlers are refused, fail and ask to come again
	patience    ingredient = "patience"    // jobs have a MaxWait or a Deadline
	timeouts    ingredient = "timeouts"    // and a Timeout, which some of them outlive
	locks       ingredient = "locks"       // jobs are Unique
	callers     ingredient = "callers"     // others take permits without a queue
	strict      ingredient = "strict"      // one queue goes before the other
	rules       ingredient = "rules"       // what the jobs of a lane need changes
	changes     ingredient = "changes"     // operators set and unset keys, block them, reset meters and redefine limits
	outages     ingredient = "outages"     // the limiter and processes hang, others leave
	replicas    ingredient = "replicas"    // one takes over that has not heard of all
	corruptions ingredient = "corruptions" // what the scope keeps is changed by hand
	fairness    ingredient = "fairness"    // jobs have fairness keys
	versions    ingredient = "versions"    // workers of other versions come before these, and beside them
)

var ingredients = []ingredient{costs, settles, answers, patience, timeouts, locks, callers, strict, rules, changes, outages, replicas, corruptions, fairness, versions}

// simIngredients are what a world is made of.
type simIngredients []ingredient

// newIngredients leaves a third of all worlds plain, as how long lanes wait is judged best
// there, and has each other have a third of what there is.
func newIngredients(seed uint64) (m simIngredients) {
	r := rand.New(rand.NewPCG(seed, 11))
	if r.IntN(3) == 0 {
		return nil
	}
	for _, i := range ingredients {
		if r.IntN(3) == 0 {
			m = append(m, i)
		}
	}
	if m.has(settles) && !m.has(costs) {
		m = append(m, costs)
	}
	return m
}

func (m simIngredients) has(i ingredient) bool { return slices.Contains(m, i) }

// hasAll reports whether a world has all ingredients of a text.
func (m simIngredients) hasAll(text string) bool {
	return !slices.ContainsFunc(strings.Fields(strings.ReplaceAll(text, ",", " ")), func(name string) bool { return !m.has(ingredient(name)) })
}

func (m simIngredients) String() string {
	if len(m) == 0 {
		return "plain"
	}
	var names []string
	for _, i := range m {
		names = append(names, string(i))
	}
	return strings.Join(names, ", ")
}

// dice are a job's own: what becomes of it does not hang on what others were dealt, so
// that a world with one thing changed is the same in all others.
func (w *sim) dice(id string, times int) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()+uint64(times)))
}

// simOrder is what a job is enqueued with, and what its handler does.
type simOrder struct {
	dear     float64 // of what its limits give at once, it costs so much
	takes    time.Duration
	maxRetry int
	priority PriorityLevel
	maxWait  time.Duration
	deadline time.Duration // from when it is enqueued
	timeout  time.Duration
	outlives bool // its first handler outlives its Timeout, and it needs more from then on
	unique   time.Duration
	settles  []simSettlement
	tenant   string
	form     int // in which it names hosts
}

// simSettlement is one that a handler does on its way.
type simSettlement struct {
	after time.Duration // since the one before
	need  int
	part  float64 // of what was taken
}

// order draws what a job is to be.
func (w *sim) order(l *simLane, id string) (o simOrder) {
	r := w.dice(id, 0)
	o.priority = []PriorityLevel{PriorityNormal, PriorityNormal, PriorityNormal, PriorityHigh, PriorityLow}[r.IntN(5)]
	if l.even {
		o.priority = PriorityNormal
	}
	o.maxRetry, o.takes = r.IntN(2), l.takes
	if w.has(costs) && r.IntN(2) == 0 {
		o.dear = r.Float64()
	}
	if w.has(patience) && l.impatient && r.IntN(3) > 0 {
		o.maxWait = l.patience / 4 * time.Duration(between(r, 1, 4))
		if r.IntN(4) == 0 {
			o.maxWait, o.deadline = 0, (o.maxWait + 2*time.Second).Truncate(time.Second)
		}
	}
	if w.has(locks) {
		o.unique = time.Duration(between(r, 1, 30)) * time.Second
	}
	if w.has(timeouts) {
		o.timeout = o.takes.Truncate(time.Second) + time.Duration(between(r, 2, 4))*time.Second
		o.outlives = w.has(answers) && r.IntN(3) == 0
		if w.has(answers) {
			o.maxRetry = 10
		}
	}
	if w.has(settles) && !w.has(timeouts) { // else a handler could outlive its Timeout in an outage
		o.settles = newSettlements(r, o.takes)
	}
	if w.has(fairness) {
		o.tenant = []string{"", "acme", "a|b"}[r.IntN(3)]
	}
	o.form = r.IntN(12)
	return o
}

// newSettlements draws up to three, most of them of less than was taken.
func newSettlements(r *rand.Rand, takes time.Duration) (all []simSettlement) {
	n := r.IntN(4)
	for range n {
		s := simSettlement{after: takes / time.Duration(n+1), need: r.IntN(3), part: r.Float64()}
		if s.part *= s.part; r.IntN(5) == 0 {
			s.part = 1 + r.Float64()
		}
		all = append(all, s)
	}
	return all
}
