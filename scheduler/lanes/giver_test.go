package lanes_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/throttle"
)

// A giver gives the lanes of a stage their turns, as package scheduler does: the
// real core decides and the real scripts carry it out. But it works only when a
// test pumps, with the stage's clock, and the jobs that it calls are promoted by
// nobody: they are the test's to answer.
type giver struct {
	store   *turns.Store
	stage   *stage
	process string

	core    *turns.Core // nil while it does not give turns
	seen    int64
	changes int64
	words   <-chan turns.Word
	silence int64 // the number of the last word of its own
	last    []string
	// batch is how many turns one call of Redis tries.
	batch int
	// fails, if set, is asked before and after each call of Redis. An error before
	// has the call not be made, one after it loses the answer; either way the
	// giver forgets all that it knew, as a process that was killed.
	fails func(call string, made bool) error
	// deaf, if set, has it not hear a word.
	deaf func(turns.Word) bool
	// fate is what becomes of a called job that is told. The zero value means
	// that it is moved to the head of its queue.
	fate func(turns.Told) turns.Fate
}

// called is a job that was called back.
type called struct {
	throttle.JobID
	// Late: not because its turn has come, but because it has waited for as long
	// as it may.
	Late bool
}

// leaseTime is for how long a giver that dies keeps others from giving turns.
const leaseTime = 1500 * time.Millisecond

func newGiver(s *stage, process string) *giver {
	g := &giver{store: turns.NewStore(s.lanes), stage: s, process: process, batch: 64}
	g.words = g.store.Words(s.ctx)
	<-g.words // it listens
	return g
}

// lives has what its heartbeats renew live on, while the clock jumps.
func (g *giver) lives() {
	if g.core == nil || g.stage.rdb.Get(background, hg("turns")).Val() != g.process {
		return
	}
	g.stage.rdb.Persist(background, hg("turns"))
	g.stage.rdb.Persist(background, hg("contended"))
}

// pump gives turns until nothing is due, and returns who is called and how long
// it is till something is due again; never is negative. It reports false where
// another process gives turns, which it does for as long as it says.
func (g *giver) pump() (list []called, next time.Duration, held bool, err error) {
	defer func() {
		if err != nil {
			g.core = nil
		}
	}()
	lead, err := g.lead()
	if err != nil || !lead.Held {
		g.core = nil
		return nil, lead.Until, false, err
	}
	late, over, err := []turns.Job(nil), time.Duration(0), error(nil)
	err = g.call("late", func() error { late, over, err = g.store.Late(background, 100); return err })
	for _, job := range late {
		list = append(list, called{throttle.JobID(job), true})
	}
	if err != nil {
		return list, 0, false, err
	}
	for range 1000 {
		told, err := g.work()
		list = append(list, told...)
		if err != nil || g.core == nil {
			return list, 0, false, err
		}
		if err := g.hear(); err != nil {
			return list, 0, true, err
		}
		if next := g.core.Next(g.now()); next > g.now() {
			if err := g.settle(); err != nil {
				return list, 0, true, err
			}
			if over < math.MaxInt64 {
				next = min(next, g.now()+over.Microseconds())
			}
			return list, g.until(next), true, nil
		}
	}
	return list, 0, true, fmt.Errorf("it is due again and again; the last turns were\n%s", strings.Join(g.last, "\n"))
}

func (g *giver) now() int64 { return g.stage.now.UnixMicro() }

func (g *giver) until(us int64) time.Duration {
	if us == math.MaxInt64 {
		return -1
	}
	return time.Duration(us-g.now()) * time.Microsecond
}

// call makes a call of Redis, unless it fails or its answer gets lost.
func (g *giver) call(name string, f func() error) error {
	if g.fails != nil {
		if err := g.fails(name, false); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	if g.fails != nil {
		return g.fails(name, true)
	}
	return nil
}

// lead takes or renews the lease, and hears what it has not heard.
func (g *giver) lead() (lead turns.Lead, err error) {
	if err := g.hear(); err != nil {
		return lead, err
	}
	if g.core == nil {
		g.seen = 0
	}
	read := func() error {
		lead, err = g.store.Lead(background, g.process, leaseTime, g.seen, "epoch")
		return err
	}
	if err = g.call("lead", read); err != nil || !lead.Held {
		return lead, err
	}
	fresh := g.core == nil || lead.Fresh
	if fresh {
		g.core, g.seen, g.changes = turns.New(), 0, lead.Changes
		weights, err := g.store.Weights(background)
		if err != nil {
			return lead, err
		}
		g.core.Weigh(weights)
	}
	if g.changes < lead.Changes { // a word got lost
		g.changes = lead.Changes
		g.core.ChangedAll()
	}
	for {
		if err = g.made(lead.Made, fresh); err != nil || len(lead.Made) < turns.LeadPage {
			break
		}
		if err = g.call("lead", read); err != nil {
			break
		}
	}
	return lead, err
}

// made tells the core of lanes that got their first job; and after a takeover
// which jobs of them were called before it.
func (g *giver) made(lanes []turns.Numbered, fresh bool) error {
	for _, lane := range lanes {
		g.core.Made(lane.Lane, lane.Number)
		g.seen = max(g.seen, lane.Number)
	}
	if !fresh {
		return nil
	}
	for lanes := range slices.Chunk(lanes, 100) {
		names := make([]string, len(lanes))
		for i, lane := range lanes {
			names[i] = lane.Lane
		}
		if err := g.recall(names, true); err != nil {
			return err
		}
	}
	return nil
}

// hear takes all words in that were said until now. That these are all it knows
// by a word of its own.
func (g *giver) hear() error {
	g.silence++
	if err := g.stage.rdb.Publish(background, hg("wake"), fmt.Sprintf("silence %d", g.silence)).Err(); err != nil {
		return err
	}
	for word := range g.words {
		if word.Kind == "silence" && word.Number == g.silence {
			break
		}
		if g.core == nil || g.deaf != nil && g.deaf(word) {
			continue
		}
		switch word.Kind {
		case turns.JobCame:
			g.core.Came(g.now(), word.Name)
		case turns.MeterChanged:
			g.core.Changed(word.Name)
		case turns.LimitChanged:
			g.core.ChangedLimit(word.Name)
		default:
			continue
		}
		g.changes = max(g.changes, word.Number)
	}
	return nil
}

// work has the core's decisions carried out once.
func (g *giver) work() (list []called, err error) {
	if lanes := g.core.Recalls(g.now(), 100); len(lanes) > 0 {
		if err := g.recall(lanes, false); err != nil {
			return nil, err
		}
	}
	if err := g.grant(); err != nil || g.core == nil {
		return nil, err
	}
	for _, job := range g.core.Tell(g.now(), 100) {
		fate := turns.Moved
		if g.fate != nil {
			fate = g.fate(job)
		}
		id := throttle.JobID{Queue: job.Queue, ID: job.ID}
		if fate == turns.Moved {
			list = append(list, called{id, false})
		}
		if fate == turns.Gone || fate == turns.Done {
			if _, err := g.stage.lanes.Forget(background, id); err != nil {
				return list, err
			}
		}
		g.core.Fate(g.now(), job, fate)
	}
	return list, nil
}

// grant has Redis try the turns that are due.
func (g *giver) grant() error {
	list := g.core.Turns(g.now(), g.batch)
	if len(list) == 0 {
		return nil
	}
	var results []turns.Result
	held := false
	err := g.call("grant", func() (err error) {
		_, results, held, err = g.store.Grant(background, g.process, list)
		return err
	})
	if err != nil {
		return err
	}
	if !held {
		g.core = nil
		return nil
	}
	g.remember(list, results)
	g.core.Tried(g.now(), results)
	return nil
}

// remember keeps what became of the last turns, to tell of them.
func (g *giver) remember(list []turns.Turn, results []turns.Result) {
	for i, r := range results {
		g.last = append(g.last, fmt.Sprintf("%d %q held %v ahead %d: %+v", g.now(), list[i].Lane, list[i].Held, list[i].Ahead, r))
	}
	g.last = slices.Delete(g.last, 0, max(0, len(g.last)-20))
}

// recall takes back what is reserved for jobs that have not come in time. After
// a takeover all called jobs are told: who called them may not have done it.
func (g *giver) recall(lanes []string, takeover bool) error {
	var recalled []turns.Recalled
	err := g.call("recall", func() (err error) {
		recalled, err = g.store.Recall(background, lanes)
		return err
	})
	if err != nil {
		return err
	}
	for i, r := range recalled {
		if takeover {
			r.Overdue = append(r.Overdue, r.Expected...)
		}
		g.core.Recalled(g.now(), lanes[i], r.Called, r.Overdue, r.Waiting > 0)
	}
	return nil
}

// settle writes where lanes take turns, and where newcomers may take again.
func (g *giver) settle() error {
	sharing := g.core.Sharing()
	if len(sharing) == 0 {
		return nil
	}
	return g.call("settle", func() error {
		marked, err := g.store.Settle(background, g.process, g.seen, sharing)
		for _, meter := range marked {
			g.core.Changed(meter)
		}
		return err
	})
}

// hg is the name of a key of the stage's scope.
func hg(name string) string { return "hg:{default}:" + name }

func (s *stage) giverOf() *giver {
	if s.giver == nil {
		s.giver = newGiver(s, "giver")
	}
	return s.giver
}

// pump has the stage's giver call back all that can be called now, and says when
// it is due again.
func (s *stage) pump(t redistest.TB) (ids []string, next time.Duration) {
	t.Helper()
	list, next, held, err := s.giverOf().pump()
	if err != nil || !held {
		t.Fatalf("pump: held %t, %v", held, err)
	}
	for _, job := range list {
		ids = append(ids, job.ID)
	}
	return ids, next
}

// pumped is who a pump calls.
func (s *stage) pumped(t redistest.TB) []string {
	t.Helper()
	ids, _ := s.pump(t)
	return ids
}
