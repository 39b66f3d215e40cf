package throttle_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestWaitingJobs runs random jobs through random limits that change, with calls
// that are answered in time, late or never, replies that get lost, words that are
// not heard, a clock that goes on, and a process that gives turns and dies between
// any two calls of Redis. Hands remove what they should not, and data get lost.
// After each step what Redis keeps of the waiting jobs must be in order; in the
// end every job must have run, within the limits, and nothing be left of it.
func TestWaitingJobs(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		lost := &lostReplies{}
		s.rdb.AddHook(lost)
		rapid.Check(t, func(t *rapid.T) {
			s.restart(t)
			y := newYard(t, s, lost)
			defer y.leave()
			t.Repeat(map[string]func(*rapid.T){
				"": y.inOrder, "submit": y.submit, "submit more": y.submit, "pump": y.pump, "wait for the pump": y.waitForPump, "wait": y.wait,
				"answer": y.answer, "answer more": y.answer, "come early": y.comeEarly, "lose": y.lose, "forget": y.forget,
				"finish": y.finish, "redefine": y.redefine, "pause": y.pause, "block": y.block, "reset": y.reset,
				"die": y.die, "edit": y.edit, "flush": y.flush,
			})
			y.drain(t)
		})
	})
}

// A yard is what the test knows of the jobs.
type yard struct {
	*stage
	lost      *lostReplies
	limits    map[string]throttle.Limit
	histories map[string][]throttletest.Admission // by meter, since its limit last changed
	jobs      map[throttle.JobID]*yardJob
	count     int  // of jobs so far
	changes   int  // how often limits have changed in a way that can break a promise
	processes int  // that have given turns
	clumsy    bool // whether hands may edit what Redis keeps, and data get lost
	edited    bool // whether one did
	leave     func()
}

type yardJob struct {
	throttle.Job
	needs   []throttle.Need
	state   string // waiting, called or running
	ticket  int
	known   bool           // whether Redis knows it, as far as this test does
	told    bool           // whether it was told that it is called
	late    bool           // whether it was told that it is too late
	since   time.Time      // when it was denied first
	ahead   bool           // whether its permits were to exist later than it was called
	changes int            // of the yard when it was called
	holder  string         // of its leases
	held    map[string]int // of a running job's meters: where the history has its permits
}

func newYard(t *rapid.T, s *stage, lost *lostReplies) *yard {
	y := &yard{
		stage: s, lost: lost, limits: map[string]throttle.Limit{}, jobs: map[throttle.JobID]*yardJob{},
		histories: map[string][]throttletest.Admission{},
		clumsy:    rapid.IntRange(0, 3).Draw(t, "clumsy") == 0,
	}
	ctx, leave := context.WithCancel(background)
	y.leave = func() { leave(); s.ctx = background }
	s.ctx = ctx
	s.giver = newGiver(s, "process 0")
	s.giver.fate = y.fate
	for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
		y.define(t, anyJobLimit(t, fmt.Sprintf("l%d", i), rapid.SampledFrom(everyKind).Draw(t, "kind")))
	}
	return y
}

var everyKind = []throttle.Kind{
	throttle.Funnel, throttle.TokenBucket, throttle.FixedWindow, throttle.SlidingLog, throttle.SlidingWindow, throttle.Concurrency,
}

// anyJobLimit lets two at once, so that all jobs can run. A fixed window with a
// margin is shut at times, which no grant can outlast.
func anyJobLimit(t *rapid.T, name string, kind throttle.Kind) throttle.Limit {
	l := anyLimitOf(t, name, kind)
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

func (y *yard) define(t *rapid.T, l throttle.Limit) {
	y.limits[l.Name] = l
	if err := y.Set(background, l); err != nil {
		t.Fatalf("%v", err)
	}
}

// submit has a new job ask. The same IDs come in both queues.
func (y *yard) submit(t *rapid.T) {
	j := &yardJob{Job: throttle.Job{JobID: throttle.JobID{Queue: fmt.Sprint("q", y.count%2), ID: fmt.Sprint("j", y.count/2)}}}
	y.count++
	j.Priority = rapid.SampledFrom([]throttle.Priority{throttle.Normal, throttle.Normal, throttle.High, throttle.Low}).Draw(t, "priority")
	j.Grant = rapid.SampledFrom([]time.Duration{throttle.DefaultGrant, 10 * time.Millisecond, 30 * time.Second}).Draw(t, "grant")
	if rapid.IntRange(0, 3).Draw(t, "is patient") == 0 {
		j.MaxWait = time.Duration(rapid.IntRange(1, 1000).Draw(t, "max wait")) * time.Second
	}
	for _, name := range slices.Sorted(maps.Keys(y.limits)) {
		if rapid.IntRange(0, 2).Draw(t, "needs "+name) > 0 || name == "l0" {
			key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
			j.needs = append(j.needs, throttle.Need{Limit: name, Key: key, Cost: rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "cost")})
		}
	}
	y.jobs[j.JobID] = j
	mustWait := y.exists("lane:" + j.lane())
	for _, need := range j.needs {
		mustWait = mustWait || y.rdb.HExists(background, hg("contended"), need.Limit+"|"+need.Key).Val()
	}
	mustWait = mustWait && y.exists("jobs") // or what is there is left over
	led := y.exists("turns")
	// Its call repeated is that of a waiting job, which nobody holds up where
	// nobody gives turns.
	if y.ask(t, j).OK() && mustWait && (led || !y.lost.did) {
		t.Fatalf("newcomer %s overtook those who wait on its meters", j.JobID)
	}
}

func (y *yard) exists(key string) bool { return y.rdb.Exists(background, hg(key)).Val() == 1 }

// ask has a job ask for its permits, and notes what came of it.
func (y *yard) ask(t *rapid.T, j *yardJob) throttle.Decision {
	y.lost.did = false
	y.lost.next = rapid.IntRange(0, 4).Draw(t, "reply is lost") == 0
	d := y.acquireJob(t, j.Job, j.needs...)
	y.lost.next = false
	if y.lost.did && y.patienceEnds(j) {
		j.known = false // it was too late, and its call repeated is a new job's
	}
	switch d.Outcome {
	case throttle.Denied:
		y.keepsTicket(t, j)
		j.state, j.known, j.told, j.late = "waiting", true, false, false
	case throttle.Allowed:
		y.run(j, d)
	case throttle.TooLate:
		if j.MaxWait == 0 || j.late && y.now.Sub(j.since) < j.MaxWait {
			t.Fatalf("%s: %s", j.JobID, d)
		}
		delete(y.jobs, j.JobID)
	default:
		t.Fatalf("%s: %s", j.JobID, d)
	}
	return d
}

// patienceEnds reports whether a job may have waited for long enough. Limits that
// are known to last longer end its wait at once.
func (y *yard) patienceEnds(j *yardJob) bool { return j.known && j.MaxWait > 0 }

// keepsTicket: a denied job has a ticket, which is the next of its lane with the
// head start that it has, or the one that it had.
func (y *yard) keepsTicket(t *rapid.T, j *yardJob) {
	record, err := y.rdb.HGet(background, hg("jobs"), j.Queue+"\n"+j.ID).Result()
	if err != nil {
		t.Fatalf("%s was denied, but is not known: %v", j.JobID, err)
	}
	fields := strings.Split(record, "\n")
	ticket, _ := strconv.Atoi(fields[0])
	since, _ := strconv.ParseInt(fields[1], 10, 64)
	if j.known && since != j.since.UnixMicro() {
		t.Fatalf("%s has waited since %d, and then since %d", j.JobID, j.since.UnixMicro(), since)
	}
	last, _ := y.rdb.HGet(background, hg("tickets"), j.lane()).Int()
	start := map[throttle.Priority]int{throttle.High: -throttle.HeadStart, throttle.Low: throttle.HeadStart}[j.Priority]
	if j.known && ticket != j.ticket || !j.known && ticket != j.ticket && ticket != last+start {
		t.Fatalf("%s had ticket %d and has %d, the last of its lane is %d", j.JobID, j.ticket, ticket, last)
	}
	j.ticket, j.since = ticket, time.UnixMicro(since)
}

func (y *yard) run(j *yardJob, d throttle.Decision) {
	j.state, j.held, j.holder = "running", map[string]int{}, d.Holder
	now := d.At.UnixMicro()
	for _, need := range j.needs {
		meter := need.Limit + "|" + need.Key
		a := throttletest.Admission{At: now, Cost: need.Cost}
		if l := y.limits[need.Limit]; l.Kind == throttle.Concurrency {
			a.Until = now + l.Lease.Microseconds()
			j.held[meter] = len(y.histories[meter])
		}
		y.histories[meter] = append(y.histories[meter], a)
	}
}

// in lists the jobs that a state, or more that is said of them, is true of.
func (y *yard) in(is func(*yardJob) bool) (jobs []*yardJob) {
	for _, j := range y.jobs {
		if is(j) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *yardJob) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.ID, b.ID))
	})
	return jobs
}

func waiting(j *yardJob) bool  { return j.state == "waiting" }
func isCalled(j *yardJob) bool { return j.state == "called" }
func running(j *yardJob) bool  { return j.state == "running" }
func told(j *yardJob) bool     { return j.state != "running" && (j.told || j.late) }

func (y *yard) any(t *rapid.T, what string, is func(*yardJob) bool) *yardJob {
	jobs := y.in(is)
	if len(jobs) == 0 {
		t.Skip("no job is " + what)
	}
	return jobs[rapid.IntRange(0, len(jobs)-1).Draw(t, what)]
}

// lane is the name of those that need the same meters.
func (j *yardJob) lane() string {
	lane := j.Queue
	for _, need := range j.needs {
		lane += "\n" + need.Limit + "|" + need.Key
	}
	return lane
}

// errKilled ends a process that gives turns.
var errKilled = errors.New("killed")

// pump gives turns. The process may hear no words, and die before or after any of
// its calls; and a job may come between any two of them.
func (y *yard) pump(t *rapid.T) {
	calls := rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}).Draw(t, "dies at")
	comes := rapid.IntRange(0, 8).Draw(t, "a job comes at")
	y.giver.fails = func(string, bool) error {
		if comes--; comes == 0 {
			y.submit(t)
		}
		if calls--; calls == 0 {
			return errKilled
		}
		return nil
	}
	deaf := rapid.Bool().Draw(t, "deaf")
	y.giver.deaf = func(turns.Word) bool { return deaf }
	y.giver.batch = rapid.SampledFrom([]int{1, 2, 64}).Draw(t, "batch")
	y.pumpOnce(t)
	y.giver.fails, y.giver.deaf = nil, nil
	if y.giver.core != nil && !deaf { // it lives, and knows all
		y.marksInOrder(t)
	}
}

// pumpOnce notes who is called: of each lane those who were first there.
func (y *yard) pumpOnce(t *rapid.T) (next time.Duration) {
	before, count := y.lanesNow(), y.count
	list, next, held, err := y.giver.pump()
	if err != nil && !errors.Is(err, errKilled) || err == nil && !held {
		t.Fatalf("pump: held %t, %v", held, err)
	}
	after := y.lanesNow()
	for lane, ids := range before {
		left := after[lane]
		if y.count > count { // a job has come meanwhile
			left = slices.DeleteFunc(slices.Clone(left), func(id string) bool { return !slices.Contains(ids, id) })
		}
		taken := len(ids) - len(left)
		if !slices.Equal(ids[taken:], left) {
			t.Fatalf("of lane %q stood %v, and stand %v", lane, ids, left)
		}
	}
	for _, j := range y.in(waiting) {
		if j.known && !slices.Contains(after[j.lane()], j.ID) {
			y.called(j)
		}
	}
	for _, c := range list {
		if j := y.jobs[c.JobID]; j != nil {
			j.told, j.late = j.told || !c.Late, j.late || c.Late
		}
	}
	if err != nil {
		y.takeOver(t)
	}
	return next
}

// lanesNow is who waits in which lane.
func (y *yard) lanesNow() map[string][]string {
	lanes := map[string][]string{}
	for _, key := range y.rdb.Keys(background, hg("lane:*")).Val() {
		lanes[strings.TrimPrefix(key, hg("lane:"))] = y.rdb.ZRange(background, key, 0, -1).Val()
	}
	return lanes
}

func (y *yard) called(j *yardJob) {
	until, _ := y.rdb.ZScore(background, hg("called:"+j.lane()), j.ID).Result()
	j.state, j.changes = "called", y.changes
	j.ahead = int64(until)-j.Grant.Microseconds() > y.now.UnixMicro()
}

// takeOver has the process come back after it died, or another one take over
// when its lease has ended.
func (y *yard) takeOver(t *rapid.T) {
	y.giver.core = nil
	if rapid.Bool().Draw(t, "comes back") {
		return
	}
	if err := y.giver.store.Resign(background, y.giver.process); err != nil {
		t.Fatalf("%v", err)
	}
	y.processes++
	y.giver.process = fmt.Sprint("process ", y.processes)
}

func (y *yard) die(t *rapid.T) { y.takeOver(t) }

// fate: a called job that is lost is found to be gone when it is told.
func (y *yard) fate(job turns.Told) turns.Fate {
	if y.jobs[throttle.JobID{Queue: job.Queue, ID: job.ID}] == nil {
		return turns.Gone
	}
	return turns.Moved
}

func (y *yard) waitForPump(t *rapid.T) {
	next := y.pumpOnce(t)
	if next <= 0 {
		t.Skip("nothing is due")
	}
	y.stage.wait(next)
	y.pumpOnce(t)
}

func (y *yard) wait(t *rapid.T) {
	unit := rapid.SampledFrom([]time.Duration{time.Microsecond, 10 * time.Millisecond, time.Second, time.Minute, 5 * time.Hour}).Draw(t, "unit")
	y.stage.wait(time.Duration(rapid.IntRange(1, 20).Draw(t, "units")) * unit)
}

// answer has a called job come. What is reserved for it, it must get, where
// nothing has changed since; unless it was called ahead: then one before it may
// have come late.
func (y *yard) answer(t *rapid.T) { y.come(t, y.any(t, "told", told)) }

func (y *yard) come(t *rapid.T, j *yardJob) {
	until, err := y.rdb.ZScore(background, hg("called:"+j.lane()), j.ID).Result()
	reserved := err == nil && int64(until) > y.now.UnixMicro()
	sure := reserved && !j.ahead && j.changes == y.changes
	if d := y.ask(t, j); sure && !d.OK() {
		t.Fatalf("%s had permits reserved until %.0f and came at %d: %s", j.JobID, until, y.now.UnixMicro(), d)
	}
}

// comeEarly has a waiting job ask without having been called. Where somebody gives
// turns it waits on; where nobody does it must not pass those before it.
func (y *yard) comeEarly(t *rapid.T) {
	j := y.any(t, "waiting", waiting)
	led := y.exists("turns")
	rank, err := y.rdb.ZRank(background, hg("lane:"+j.lane()), j.ID).Result()
	known := j.known && j.MaxWait == 0 // else it may be as new
	if y.ask(t, j).OK() && known && err == nil && (led || rank > 0) {
		t.Fatalf("%s ran, the %dth of its lane; somebody gives turns: %t", j.JobID, rank+1, led)
	}
}

// lose has a called job never come.
func (y *yard) lose(t *rapid.T) { delete(y.jobs, y.any(t, "called", isCalled).JobID) }

func (y *yard) forget(t *rapid.T) {
	j := y.any(t, "waiting or called", func(j *yardJob) bool { return !running(j) })
	delete(y.jobs, j.JobID)
	if _, err := y.stage.lanes.Forget(background, j.JobID); err != nil {
		t.Fatalf("%v", err)
	}
}

func (y *yard) finish(t *rapid.T) { y.end(t, y.any(t, "running", running)) }

func (y *yard) end(t *rapid.T, j *yardJob) {
	delete(y.jobs, j.JobID)
	if j.holder == "" {
		return
	}
	if err := y.Free(background, j.holder, j.needs...); err != nil {
		t.Fatalf("%v", err)
	}
	for meter, index := range j.held {
		held := &y.histories[meter][index]
		held.Until = max(held.At, min(held.Until, y.now.UnixMicro()))
	}
}

func (y *yard) anyLimit(t *rapid.T) throttle.Limit {
	return y.limits[fmt.Sprintf("l%d", rapid.IntRange(0, len(y.limits)-1).Draw(t, "limit"))]
}

func (y *yard) redefine(t *rapid.T) {
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
func (y *yard) restartHistory(meter string) {
	delete(y.histories, meter)
	for _, j := range y.jobs {
		delete(j.held, meter)
	}
}

func (y *yard) pause(t *rapid.T) {
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

func (y *yard) block(t *rapid.T) {
	y.changes++
	until := y.now.Add(time.Duration(rapid.IntRange(-1, 3).Draw(t, "seconds")) * time.Second)
	if err := y.Block(background, y.anyLimit(t).Name, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), until); err != nil {
		t.Fatalf("%v", err)
	}
}

func (y *yard) reset(t *rapid.T) {
	y.judge(t)
	name, key := y.anyLimit(t).Name, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
	y.restartHistory(name + "|" + key)
	if err := y.Reset(background, name, key); err != nil {
		t.Fatalf("%v", err)
	}
}

// edit removes a waiting job's record, or its entry in its lane, by hand.
func (y *yard) edit(t *rapid.T) {
	if !y.clumsy {
		t.Skip("nobody is clumsy")
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
func (y *yard) flush(t *rapid.T) {
	if !y.clumsy || rapid.IntRange(0, 5).Draw(t, "flush") > 0 {
		t.Skip("nobody is clumsy")
	}
	y.judge(t)
	y.rdb.Del(background, y.rdb.Keys(background, hg("*")).Val()...)
	for _, j := range y.in(func(j *yardJob) bool { return !running(j) }) {
		j.state, j.known, j.told, j.late = "waiting", false, false, false
	}
	clear(y.histories)
	for _, j := range y.in(running) {
		clear(j.held)
	}
	for _, l := range y.limits {
		y.define(t, l)
	}
}

func (y *yard) judge(t *rapid.T) {
	for meter, history := range y.histories {
		if err := throttletest.Check(y.limits[meter[:2]], history); err != nil {
			t.Fatalf("%v\n%v", err, history)
		}
	}
}

// drain lets everything run that still waits, giving turns only when they are
// due, or later where that gets nobody on, and looks for traces. Jobs that Redis
// lost come by themselves, when they
// have been put back for long enough.
func (y *yard) drain(t *rapid.T) {
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
		for _, j := range y.in(func(j *yardJob) bool { return told(j) || waiting(j) && !j.known }) {
			y.come(t, j)
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
		if step *= 2; len(y.in(isCalled)) > 0 {
			step = 10 * time.Millisecond
		}
		y.stage.wait(max(next, step))
	}
	y.judge(t)
	if len(y.jobs) > 0 {
		t.Fatalf("%d jobs never ran, first %+v", len(y.jobs), y.in(func(*yardJob) bool { return true })[0])
	}
	y.pumpOnce(t)
	left := y.traces(t)
	if left = slices.DeleteFunc(left, func(key string) bool { return strings.HasPrefix(key, "blocked:") }); len(left) > 0 {
		t.Fatalf("left over: %v", left)
	}
}

// lostReplies loses replies of a client's calls, which the client repeats.
type lostReplies struct {
	next bool // whether to lose the next reply
	did  bool // whether the last was lost
}

func (*lostReplies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*lostReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *lostReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if l.next && next(ctx, cmd) == nil {
			l.next, l.did = false, true
		}
		return next(ctx, cmd)
	}
}
