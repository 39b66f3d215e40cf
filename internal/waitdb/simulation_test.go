package waitdb_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestWaitingJobs runs random jobs through random limits that change, with calls
// that are answered in time, late or never, replies that get lost, notifications that are
// not received, a clock that goes on, and a process that gives turns and dies between
// any two calls of Redis. Hands remove what they should not, and data get lost.
// After each step what Redis keeps of the waiting jobs must be in order; in the
// end every job must have run, within the limits, and nothing be left of it.
func TestWaitingJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	onRedis(t, func(t *testing.T, s *fixture) {
		lost := &redistest.LostReplies{}
		s.rdb.AddHook(redistest.Hook(lost.Around))
		rapid.Check(t, func(t *rapid.T) {
			s.restart(t)
			y := newSimulation(t, s, lost)
			defer y.leave()
			t.Repeat(map[string]func(*rapid.T){
				"": y.inOrder, "submit": y.submit, "submit more": y.submit, "pump": y.pump, "wait for the pump": y.waitForPump, "wait": y.wait,
				"answer": y.answer, "answer more": y.answer, "arrive early": y.arriveEarly, "lose": y.lose, "forget": y.forget,
				"finish": y.finish, "redefine": y.redefine, "pause": y.pause, "block": y.block, "reset": y.reset,
				"die": y.die, "edit": y.edit, "flush": y.flush,
			})
			y.drain(t)
		})
	})
}

// A simulation is what the test knows of the jobs.
type simulation struct {
	*fixture
	lost      *redistest.LostReplies
	limits    map[string]throttle.Limit
	histories map[string][]throttletest.Admission // by meter, since its limit last changed
	jobs      map[throttle.JobID]*simJob
	parked    map[string]time.Time // until when the dispatcher may take a queue for stopped that is not
	count     int                  // of jobs so far
	changes   int                  // how often limits have changed in a way that can break a promise
	processes int                  // that have given turns
	clumsy    bool                 // whether hands may edit what Redis keeps, and data get lost
	edited    bool                 // whether one did
	leave     func()
}

func newSimulation(t *rapid.T, s *fixture, lost *redistest.LostReplies) *simulation {
	y := &simulation{
		fixture: s, lost: lost, limits: map[string]throttle.Limit{}, jobs: map[throttle.JobID]*simJob{},
		histories: map[string][]throttletest.Admission{}, parked: map[string]time.Time{},
		clumsy: rapid.IntRange(0, 3).Draw(t, "clumsy") == 0,
	}
	ctx, leave := context.WithCancel(background)
	y.leave = func() { leave(); s.ctx = background }
	s.ctx = ctx
	s.dispatcher = newDispatcher(s, "process 0")
	s.dispatcher.state = y.state
	for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
		y.define(t, anyJobLimit(t, fmt.Sprintf("l%d", i), rapid.SampledFrom(limittest.Kinds).Draw(t, "kind")))
	}
	return y
}

func (y *simulation) exists(key string) bool { return y.rdb.Exists(background, hg(key)).Val() == 1 }

func (y *simulation) judge(t *rapid.T) {
	for meter, history := range y.histories {
		if err := throttletest.Check(y.limits[meter[:2]], history); err != nil {
			t.Fatalf("%v\n%v", err, history)
		}
	}
}

// drain lets everything run that still waits, giving turns only when they are
// due, or later where that helps no job, and looks for traces. Jobs that Redis
// lost arrive by themselves, when they
// have been put back for long enough.
func (y *simulation) drain(t *rapid.T) {
	for name := range y.limits {
		if err := y.Resume(background, name); err != nil {
			t.Fatalf("%v", err)
		}
	}
	y.changes++
	step := 10 * time.Millisecond
	for range 50 * (y.count + 10) {
		next := y.pumpOnce(t)
		answered := false
		for _, j := range y.in(func(j *simJob) bool { return promoted(j) || waiting(j) && !j.known }) {
			y.arrive(t, j)
			answered = true
		}
		for _, j := range y.in(running) {
			y.end(t, j)
			answered = true
		}
		y.inOrder(t)
		if answered {
			continue
		}
		if next < 0 {
			break
		}
		if step *= 2; len(y.in(isGranted)) > 0 {
			step = 10 * time.Millisecond
		}
		y.fixture.wait(max(next, step))
	}
	y.judge(t)
	if len(y.jobs) > 0 {
		t.Fatalf("%d jobs never ran, first %+v", len(y.jobs), y.in(func(*simJob) bool { return true })[0])
	}
	y.pumpOnce(t)
	left := y.traces(t)
	if left = slices.DeleteFunc(left, func(key string) bool { return strings.HasPrefix(key, "blocked:") }); len(left) > 0 {
		t.Fatalf("left over: %v", left)
	}
}

// edit removes a waiting job's record, or its entry in its lane, by hand.
func (y *simulation) edit(t *rapid.T) {
	if !y.clumsy {
		t.Skip("no fault")
	}
	j := y.any(t, "waiting", waiting)
	y.edited, j.known = true, false
	if rapid.Bool().Draw(t, "the record") {
		y.rdb.HDel(background, hg("jobs"), j.Queue+"\n"+j.ID)
	} else {
		y.rdb.ZRem(background, hg("lane:"+j.lane()), j.ID)
	}
}

// flush loses all of the scope's data; the limits are defined again.
func (y *simulation) flush(t *rapid.T) {
	if !y.clumsy || rapid.IntRange(0, 5).Draw(t, "flush") > 0 {
		t.Skip("no fault")
	}
	y.judge(t)
	y.rdb.Del(background, y.rdb.Keys(background, hg("*")).Val()...)
	for _, j := range y.in(func(j *simJob) bool { return !running(j) }) {
		j.state, j.known, j.promoted, j.late = "waiting", false, false, false
	}
	clear(y.histories)
	for _, j := range y.in(running) {
		clear(j.held)
	}
	for _, l := range y.limits {
		y.define(t, l)
	}
}
