package waitdb_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestOneProcessGivesTurns: others are told when to ask again, and take over
// when it resigns or its lease ends.
func TestOneProcessGivesTurns(t *testing.T) {
	s := miniStage(t)
	define(t, s, perMinute("l", 1))
	s.acquire(t, "a", one("l"))
	s.acquire(t, "b", one("l"))
	dispatchers := map[string]*dispatcher{}
	for _, process := range []string{"one", "two", "three"} {
		dispatchers[process] = newDispatcher(s, process)
	}
	pump := func(process string) (bool, time.Duration) {
		t.Helper()
		_, next, held, err := dispatchers[process].pump()
		must(t, err)
		return held, next
	}
	for _, tt := range []struct {
		process string
		held    bool
		next    time.Duration
	}{{"one", true, time.Second}, {"two", false, leaseTime}, {"one", true, time.Second}} {
		held, next := pump(tt.process)
		expect(t, tt.process, [2]any{held, next}, [2]any{tt.held, tt.next})
	}
	resign := func(process string) { must(t, dispatchers[process].store.StepDown(background, process)) }
	resign("two")
	held, _ := pump("two")
	expect(t, "after somebody else resigned", held, false)
	resign("one")
	held, _ = pump("two")
	expect(t, "after one has resigned", held, true)
	s.wait(leaseTime - time.Millisecond)
	held, _ = pump("three")
	expect(t, "before the end of two's lease", held, false)
	s.wait(time.Millisecond)
	held, _ = pump("three")
	expect(t, "after two's lease", held, true)
	resign("three")
	resign("three")
}

// TestDeposedProcess: one whose lease has ended gives no turns any more, whatever
// it still thinks.
func TestDeposedProcess(t *testing.T) {
	s := miniStage(t)
	define(t, s, perMinute("l", 1))
	s.acquire(t, "a", one("l"))
	s.acquire(t, "b", one("l"))
	one, two := newDispatcher(s, "one"), newDispatcher(s, "two")
	_, _, _, err := one.pump()
	must(t, err)
	s.wait(time.Minute)
	_, _, held, err := two.pump()
	must(t, err)
	expect(t, "two takes over", held, true)
	_, _, held, err = one.store.Grant(background, "one", []fairqueue.Turn{{Lane: "default\nl|k"}})
	must(t, err)
	expect(t, "one may give turns", held, false)
	_, err = one.store.PublishShares(background, "one", 10, map[string]int{"l|k": 0, "m|k": 7})
	must(t, err)
	expect(t, "one may settle", s.rdb.HExists(background, hg("meters"), "m|k\n").Val(), false)
}

// TestTakeover: another process knows from Redis alone who waits, who is called
// and who has to be told again, wherever the one before it died. Of whose turn it
// was it knows only in which order the lanes were made.
func TestTakeover(t *testing.T) {
	killed := errors.New("killed")
	for _, at := range []string{"lead", "grant", "settle"} {
		for _, made := range []bool{false, true} {
			t.Run(fmt.Sprint("at ", at, ", made ", made), func(t *testing.T) {
				onRedis(t, func(t *testing.T, s *stage) {
					define(t, s, perMinute("l", 2), perMinute("m", 100))
					for i := range 6 {
						s.acquire(t, fmt.Sprint(i), one("l"))
					}
					s.acquire(t, "both", one("l"), one("m"))
					s.pump(t)
					s.wait(time.Minute)
					s.dispatcher.fails = func(call string, done bool) error {
						if call == at && done == made {
							return killed
						}
						return nil
					}
					list, _, _, err := s.dispatcher.pump()
					if len(list) > 0 && at != "settle" {
						t.Errorf("told before it was killed: %v", list)
					}
					if !errors.Is(err, killed) && at != "settle" { // there may be nothing to settle
						t.Errorf("%v, want %v", err, killed)
					}
					must(t, s.lanes.StepDown(background, "dispatcher")) // its lease ends
					next := newDispatcher(s, "next")
					s.dispatcher = next
					needs := map[string][]throttle.Need{"both": {one("l"), one("m")}}
					ran := 0
					for range 3 {
						called := s.pumped(t)
						if len(called) == 0 || ran == 0 && called[0] != "2" {
							t.Errorf("called %v after %d", called, ran)
						}
						for _, job := range called {
							if needs[job] == nil {
								needs[job] = []throttle.Need{one("l")}
							}
							s.wantTaken(t, []string{job}, needs[job]...)
							ran++
						}
						s.wait(time.Minute)
					}
					expect(t, "ran, as many a minute as may", ran, 5)
					s.pump(t)
					expect(t, "traces", s.traces(t), nil)
				})
			})
		}
	}
}

// TestTakeoverOfManyLanes: they are read a page at a time.
func TestTakeoverOfManyLanes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	s := miniStage(t)
	define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerMinute(1)})
	const lanes = 2*waitdb.LanesPage + 1
	for i := range lanes {
		for range 2 {
			s.acquire(t, fmt.Sprint(i), throttle.Need{Limit: "l", Key: fmt.Sprint(i)})
		}
		s.acquire(t, fmt.Sprint("w", i), throttle.Need{Limit: "l", Key: fmt.Sprint(i)})
	}
	s.wait(time.Minute)
	expect(t, "called", len(s.pumped(t)), lanes)
}
