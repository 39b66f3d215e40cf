package waitdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestLeader_OneProcess: others know when to ask again, and take over
// when it resigns or its lease ends.
func TestLeader_OneProcess(t *testing.T) {
	s := miniFixture(t)
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
	}{{"one", true, 30 * time.Second}, {"two", false, leaseTime}, {"one", true, 30 * time.Second}} {
		held, next := pump(tt.process)
		expect(t, tt.process, [2]any{held, next}, [2]any{tt.held, tt.next})
	}
	resign := func(process string) { must(t, dispatchers[process].store.StepDown(background, process, "")) }
	resign("two")
	held, _ := pump("two")
	expect(t, "after another process has stepped down", held, false)
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

// TestLeader_LeaseLost: one whose lease has ended gives no turns any more, whatever
// it still thinks.
func TestLeader_LeaseLost(t *testing.T) {
	s := miniFixture(t)
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
	_, _, held, err = one.store.Grant(background, "one", []fairqueue.Turn{{Lane: "default\nl|k", Held: []int64{0}}})
	must(t, err)
	expect(t, "one may give turns", held, false)
	_, err = one.store.PublishShares(background, "one", 10, map[string]int{"l|k": 0, "m|k": 7})
	must(t, err)
	expect(t, "one may settle", s.rdb.HExists(background, hg("meters"), "m|k\n").Val(), false)
}

// TestLeader_TakesOverManyLanes: they are read a page at a time.
func TestLeader_TakesOverManyLanes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	s := miniFixture(t)
	define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerMinute(1)})
	const lanes = 2*waitdb.LanesPage + 1
	for i := range lanes {
		for range 2 {
			s.acquire(t, fmt.Sprint(i), throttle.Need{Limit: "l", Key: fmt.Sprint(i)})
		}
		s.acquire(t, fmt.Sprint("w", i), throttle.Need{Limit: "l", Key: fmt.Sprint(i)})
	}
	s.wait(time.Minute)
	expect(t, "granted", len(s.pumped(t)), lanes)
}
