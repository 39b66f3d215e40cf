package waitdb_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// anyJobLimit lets two at once, so that all jobs can run. A fixed window with a
// margin is closed at times, which no grant can outlast.
func anyJobLimit(t *rapid.T, name string, kind throttle.Kind) throttle.Limit {
	l := limittest.Any(t, name, kind)
	if l.Capacity > 0 {
		l.Capacity++
	} else {
		l.Rate.N++
	}
	if kind == throttle.FixedWindow {
		l.Margin = 0
	}
	return l
}

func (y *simulation) define(t *rapid.T, l throttle.Limit) {
	y.limits[l.Name] = l
	if err := y.Set(background, l); err != nil {
		t.Fatalf("%v", err)
	}
}

func (y *simulation) anyLimit(t *rapid.T) throttle.Limit {
	return y.limits[fmt.Sprintf("l%d", rapid.IntRange(0, len(y.limits)-1).Draw(t, "limit"))]
}

func (y *simulation) redefine(t *rapid.T) {
	was := y.anyLimit(t)
	y.judge(t)
	y.changes++
	l := anyJobLimit(t, was.Name, was.Kind)
	for _, key := range []string{"a", "b"} {
		y.restartHistory(l.Name + "|" + key)
	}
	y.define(t, l)
}

// restartHistory begins a meter's history again.
func (y *simulation) restartHistory(meter string) {
	delete(y.histories, meter)
	for _, j := range y.jobs {
		delete(j.held, meter)
	}
}

func (y *simulation) pause(t *rapid.T) {
	name := y.anyLimit(t).Name
	change := y.Resume
	if rapid.Bool().Draw(t, "pause") {
		change = y.Pause
	}
	y.changes++
	if err := change(background, name); err != nil {
		t.Fatalf("%v", err)
	}
}

func (y *simulation) block(t *rapid.T) {
	y.changes++
	until := y.now.Add(time.Duration(rapid.IntRange(-1, 3).Draw(t, "seconds")) * time.Second)
	if err := y.Block(background, y.anyLimit(t).Name, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), until); err != nil {
		t.Fatalf("%v", err)
	}
}

func (y *simulation) reset(t *rapid.T) {
	y.judge(t)
	name, key := y.anyLimit(t).Name, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
	y.restartHistory(name + "|" + key)
	if err := y.Reset(background, name, key); err != nil {
		t.Fatalf("%v", err)
	}
}

// errKilled ends a process that gives turns.
var errKilled = errors.New("killed")

// pump gives turns. The process may receive no notifications, and die before or after any of
// its calls; and a job may arrive between any two of them.
func (y *simulation) pump(t *rapid.T) {
	calls := rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}).Draw(t, "dies at")
	arrives := rapid.IntRange(0, 8).Draw(t, "a job arrives at")
	y.dispatcher.fails = func(string, bool) error {
		if arrives--; arrives == 0 {
			y.submit(t)
		}
		if calls--; calls == 0 {
			return errKilled
		}
		return nil
	}
	ignores := rapid.Bool().Draw(t, "ignores")
	y.dispatcher.ignores = func(waitdb.Notification) bool { return ignores }
	y.dispatcher.batch = rapid.SampledFrom([]int{1, 2, 64}).Draw(t, "batch")
	y.pumpOnce(t)
	y.dispatcher.fails, y.dispatcher.ignores = nil, nil
	if y.dispatcher.core != nil && !ignores { // it lives, and knows all
		y.marksInOrder(t)
	}
}

// pumpOnce notes who is granted: of each lane those who were first there.
func (y *simulation) pumpOnce(t *rapid.T) (next time.Duration) {
	before, count := y.lanesNow(), y.count
	list, next, held, err := y.dispatcher.pump()
	if err != nil && !errors.Is(err, errKilled) || err == nil && !held {
		t.Fatalf("pump: held %t, %v", held, err)
	}
	after := y.lanesNow()
	for lane, ids := range before {
		left := after[lane]
		if y.count > count { // a job has arrived meanwhile
			left = slices.DeleteFunc(slices.Clone(left), func(id string) bool { return !slices.Contains(ids, id) })
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(left, id) && y.isOver(lane, id) })
		taken := len(ids) - len(left)
		if !slices.Equal(ids[taken:], left) {
			t.Fatalf("of lane %q was %v, and stand %v", lane, ids, left)
		}
	}
	for _, j := range y.in(waiting) {
		switch gone := j.known && !slices.Contains(after[j.lane()], j.ID); {
		case gone && y.isOver(j.lane(), j.ID):
			j.state = "over"
		case gone:
			y.granted(j)
		}
	}
	for _, c := range list {
		if j := y.jobs[c.JobID]; j != nil {
			j.promoted, j.late = j.promoted || !c.Late, j.late || c.Late
		}
	}
	if err != nil {
		y.takeOver(t)
	}
	return next
}

// isOver reports whether the time of a job is up that is in no lane's granted jobs.
func (y *simulation) isOver(lane, id string) bool {
	queue, _, _ := strings.Cut(lane, "\n")
	j := y.jobs[throttle.JobID{Queue: queue, ID: id}]
	return j != nil && y.timeIsUp(j) && y.rdb.ZScore(background, hg("granted:"+lane), id).Err() != nil
}

// lanesNow is who waits in which lane.
func (y *simulation) lanesNow() map[string][]string {
	lanes := map[string][]string{}
	for _, key := range y.rdb.Keys(background, hg("lane:*")).Val() {
		lanes[strings.TrimPrefix(key, hg("lane:"))] = y.rdb.ZRange(background, key, 0, -1).Val()
	}
	return lanes
}

func (y *simulation) granted(j *simJob) {
	until, _ := y.rdb.ZScore(background, hg("granted:"+j.lane()), j.ID).Result()
	j.state, j.changes = "granted", y.changes
	j.ahead = int64(until)-j.Grant.Microseconds() > y.now.UnixMicro()
}

// takeOver has the process return after it died, or another one take over
// when its lease has ended.
func (y *simulation) takeOver(t *rapid.T) {
	y.dispatcher.core = nil
	if rapid.Bool().Draw(t, "returns") {
		return
	}
	if err := y.dispatcher.store.StepDown(background, y.dispatcher.process, ""); err != nil {
		t.Fatalf("%v", err)
	}
	y.processes++
	y.dispatcher.process = fmt.Sprint("process ", y.processes)
}

func (y *simulation) die(t *rapid.T) { y.takeOver(t) }

// state: a granted job that is lost is found to be gone when it is promoted.
func (y *simulation) state(job fairqueue.GrantedJob) fairqueue.State {
	if y.jobs[throttle.JobID{Queue: job.Queue, ID: job.ID}] == nil {
		return fairqueue.StateGone
	}
	return fairqueue.StateMoved
}

func (y *simulation) waitForPump(t *rapid.T) {
	next := y.pumpOnce(t)
	if next <= 0 {
		t.Skip("nothing is due")
	}
	y.fixture.wait(next)
	y.pumpOnce(t)
}

func (y *simulation) wait(t *rapid.T) {
	unit := rapid.SampledFrom([]time.Duration{time.Microsecond, 10 * time.Millisecond, time.Second, time.Minute, 5 * time.Hour}).Draw(t, "unit")
	y.fixture.wait(time.Duration(rapid.IntRange(1, 20).Draw(t, "units")) * unit)
}
