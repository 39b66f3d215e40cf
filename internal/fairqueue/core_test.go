package fairqueue

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// lanesOf are the lanes whose turns are given at a time; results are their answers.
func turnsOf(c *Core, now int64, results ...Result) (lanes []string) {
	for _, t := range c.Turns(now, 10) {
		lanes = append(lanes, t.Lane)
	}
	c.ApplyResults(now, results)
	return lanes
}

func same[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func api(ready int64) []Need {
	return []Need{{Cost: 1, Ready: ready, Known: true, Refill: second}}
}

func refused(ready int64) Result {
	return Result{Outcome: Refused, Next: api(ready), MaxAdvance: maxAdvance}
}

func granted(job string, now int64, next []Need) Result {
	return Result{Job: job, At: now, Until: now + grantLife, Next: next, MaxAdvance: maxAdvance, Granted: 1}
}

func TestChanged_ForgetsBounds(t *testing.T) {
	c := New()
	c.AddLane("q\napi|", 1)
	turnsOf(c, 1, refused(second/2))
	for name, change := range map[string]func(){
		"another limit": func() { c.Changed(2, "ap") },
		"another meter": func() { c.Changed(2, "api|x") },
	} {
		change()
		same(t, name, turnsOf(c, 2))
	}
	for name, change := range map[string]func(){
		"the meter": func() { c.Changed(2, "api|") },
		"its limit": func() { c.Changed(2, "api") },
		"all":       func() { c.Changed(2, "") },
	} {
		change()
		same(t, name, turnsOf(c, 2, refused(second/2)), "q\napi|")
	}
}

func TestTried_RefusedWithoutTime_TriedAgain(t *testing.T) {
	c := New()
	c.AddLane("q\napi|", 1)
	turnsOf(c, 1, refused(1))
	same(t, "at once", turnsOf(c, 1))
	same(t, "after a blink", turnsOf(c, 1+clockSkew, refused(second)), "q\napi|")
}

func TestTried_LostReply(t *testing.T) {
	c := New()
	c.AddLane("q\napi|", 1)
	turnsOf(c, 1)
	same(t, "the next turn", turnsOf(c, 2, Result{Outcome: Empty, Granted: 1}), "q\napi|")
	same(t, "to expire", c.ToExpire(lostReplyPause+2, 10), "q\napi|")
	c.Expired(lostReplyPause+2, "q\napi|", 1, []string{"lost"}, false)
	same(t, "promoted", c.ToPromote(lostReplyPause+2, 10), GrantedJob{"q", "lost", "q\napi|"})
}

// TestTurns_LaneEmptiedWithinBatch: its last job is granted, another arrives, and the
// next turn of the batch finds that one.
func TestTurns_LaneEmptiedWithinBatch(t *testing.T) {
	c := New()
	c.AddLane("q\napi|", 1)
	turnsOf(c, 1, granted("1", 1, api(0)))
	turnsOf(c, 2, granted("2", 2, api(0)))
	same(t, "two turns", turnsOf(c, 3, granted("3", 3, nil), refused(second)), "q\napi|", "q\napi|")
	same(t, "before its word", turnsOf(c, 4))
	c.AddLane("q\napi|", 2)
	same(t, "after its word", slices.Compact(turnsOf(c, 5)), "q\napi|")
}

func TestTurns_LimitGone_JobLearnsIt(t *testing.T) {
	c := New()
	c.AddLane("q\napi|", 1)
	turnsOf(c, 1, Result{Outcome: Impossible, Job: "1", Granted: 1})
	job := GrantedJob{"q", "1", "q\napi|"}
	same(t, "promoted at once", c.ToPromote(1, 10), job)
	c.Promoted(2, job, StateMoved)
	same(t, "not again", c.ToPromote(second, 10))
	c.Promoted(second, job, StateGone)
	c.Expired(second, c.ToExpire(second, 10)[0], 0, nil, false)
	c.Sharing(second)
	if next := c.Next(second); next != never || len(c.lanes) != 0 {
		t.Errorf("next %d, %d lanes: want nothing", next, len(c.lanes))
	}
}

// A granted job arrived, ran and is done before it is promoted, and Redis has reported so: it does
// not count once more, for another one that is still called.
func TestPromoted_JobDoneBefore(t *testing.T) {
	c := New()
	c.AddLane("q\napi|", 1)
	turnsOf(c, 1, granted("1", 1, api(0)))
	second := granted("2", 2, nil) // the first has arrived
	turnsOf(c, 2, second)
	promoted := c.ToPromote(2, 10)
	c.Promoted(2, promoted[0], StateDone)
	c.Promoted(2, promoted[1], StateUnknown)
	same(t, "asked about at once", c.ToExpire(2, 10), "q\napi|")
	c.Expired(2, "q\napi|", 1, nil, false)
	same(t, "asked about when its permits are kept no more", c.ToExpire(second.Until, 10), "q\napi|")
}

func TestToPromote_OverdueJob_GrowingPauses(t *testing.T) {
	c := New()
	c.AddLane("q\napi|", 1)
	turnsOf(c, 1, granted("1", 1, nil))
	var promoted []int64
	for now := c.Next(1); now < 200*second; now = c.Next(now + 1) {
		turnsOf(c, now)
		for range c.ToPromote(now, 10) {
			promoted = append(promoted, now)
		}
		for _, lane := range c.ToExpire(now, 10) {
			c.Expired(now, lane, 1, []string{"1"}, false)
		}
	}
	for i := 2; i < len(promoted); i++ {
		if pause, last := promoted[i]-promoted[i-1], promoted[i-1]-promoted[i-2]; pause < last || pause > maxPause+probeInterval {
			t.Errorf("promoted at %v: the pauses do not grow to 30 s", promoted)
		}
	}
	if len(promoted) < 10 {
		t.Errorf("promoted only at %v", promoted)
	}
}

// Where permits return several in a step the grants of a step are promoted together, and
// elsewhere each when its permit exists.
func TestToPromote_AdvanceGrants(t *testing.T) {
	for worth, want := range map[int64][]int64{notifyStep / 2: {2 * notifyStep, 2 * notifyStep, 3 * notifyStep}, notifyStep: {notifyStep + 1, notifyStep + 2, 3 * notifyStep}} {
		c := New()
		c.AddLane("q\napi|", 1)
		next := api(0)
		next[0].Refill = worth
		for i, at := range []int64{notifyStep + 1, notifyStep + 2, 3 * notifyStep} {
			turnsOf(c, 1, Result{Job: fmt.Sprint(i), At: at, Until: at + grantLife, Next: next, MaxAdvance: maxAdvance, Granted: i + 1})
		}
		var promoted []int64
		for now := c.Next(2); now < notifyStep*4; now = c.Next(now + 1) {
			for range c.ToPromote(now, 10) {
				promoted = append(promoted, now)
			}
		}
		same(t, fmt.Sprint("promoted where one returns each ", worth, " µs"), promoted, want...)
	}
}

// A job that takes its permits late makes those of the others later that were called
// ahead of theirs: not even a change of the meter's has that forgotten.
func TestTurns_Advance_LimitedByOtherJobs(t *testing.T) {
	for _, ahead := range []int64{maxAdvance, maxAdvance / 2, travelTime} {
		c := New()
		c.AddLane("small\napi|", 1)
		c.AddLane("big\napi|", 2)
		big := refused(second)
		big.MaxAdvance = ahead
		first := granted("1", 1, api(second))
		first.TakesEarly = true
		turnsOf(c, 1, first)
		turnsOf(c, second, big)
		c.Changed(2, "api|")
		turns := c.Turns(2*second, 1)
		if len(turns) != 1 || turns[0].Advance != ahead {
			t.Errorf("one may be called %d µs ahead: turns %+v", ahead, turns)
		}
	}
}

// Where a meter gives few at once, a job is called as long before its permit exists as it
// takes to arrive.
func TestTurns_Advance_FewPermits(t *testing.T) {
	c := New()
	c.AddLane("q\napi|", 1)
	first := granted("1", 1, api(second))
	first.TakesEarly, first.MaxAdvance = true, travelTime
	turnsOf(c, 1, first)
	if turns := c.Turns(second-travelTime-1, 1); len(turns) > 0 {
		t.Errorf("called too far ahead: %+v", turns)
	}
	if turns := c.Turns(second-travelTime, 1); len(turns) != 1 || turns[0].Advance != travelTime {
		t.Errorf("turns %+v, want one that is called %d µs ahead", turns, travelTime)
	}
}

// A job that is called at once after its denial is still being put back when it is
// promoted: it is promoted again soon, for as long as its permits are kept.
func TestToPromote_WhileBeingPutBack(t *testing.T) {
	c := New()
	c.AddLane("q\napi|", 1)
	turnsOf(c, 1, granted("1", 1, nil))
	job := GrantedJob{"q", "1", "q\napi|"}
	var promoted []int64
	for now := int64(1); now < grantLife; now = c.Next(now + 1) {
		for range c.ToPromote(now, 10) {
			promoted = append(promoted, now)
			c.Promoted(now, job, StateActive)
		}
	}
	same(t, "promoted", promoted, 1, 1+minRepeat, 1+2*minRepeat, 1+4*minRepeat, 1+8*minRepeat, 1+16*minRepeat)

	c = New()
	c.AddLane("q\napi|", 1)
	turnsOf(c, 1, granted("1", 1, nil))
	same(t, "promoted", c.ToPromote(1, 10), job)
	c.Promoted(1, job, StateActive)
	same(t, "promoted again", c.ToPromote(1+minRepeat, 10), job)
	c.Promoted(1+minRepeat, job, StateMoved)
	same(t, "not after it was moved", c.ToPromote(grantLife, 10))
}

func TestSharing(t *testing.T) {
	c := New()
	c.AddLane("q\na|\nb|", 1)
	c.AddLane("q\na|", 2)
	want := func(what string, want map[string]int) {
		t.Helper()
		if got := c.Sharing(second); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	want("a meter where no job waits is returned once", map[string]int{"a|": 2, "b|": 0})
	want("nothing new", map[string]int{})
	c.AddLane("q\na|\nb|", 3)
	want("Redis has lost the lane", map[string]int{"a|": 2, "b|": 0})
	turnsOf(c, 1, Result{Outcome: Empty}, Result{Outcome: Empty})
	turnsOf(c, 1, Result{Outcome: Empty}, Result{Outcome: Empty})
	want("no job waits", map[string]int{"a|": 0})
	if len(c.meters) != 0 {
		t.Errorf("%d meters are kept", len(c.meters))
	}
}
