package throttle_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// TestWaitingJobs runs random jobs through random limits that change, with calls
// that are answered in time, late or never, and a clock that goes on. After each
// step what Redis keeps of the waiting jobs must be in order; in the end every
// job must have run, within the limits, and nothing be left of it.
func TestWaitingJobs(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		rapid.Check(t, func(t *rapid.T) {
			s.restart(t)
			y := newYard(t, s)
			t.Repeat(map[string]func(*rapid.T){
				"": y.inOrder, "submit": y.submit, "submit more": y.submit, "pump": y.pump, "wait for the pump": y.waitForPump, "wait": y.wait,
				"answer": y.answer, "answer more": y.answer, "come early": y.comeEarly, "lose": y.lose, "forget": y.forget,
				"finish": y.finish, "redefine": y.redefine, "pause": y.pause, "block": y.block, "reset": y.reset,
			})
			y.drain(t)
		})
	})
}

// A yard is what the test knows of the jobs.
type yard struct {
	*stage
	limits    map[string]throttle.Limit
	histories map[string][]throttletest.Admission // by meter, since its limit last changed
	jobs      map[string]*job
	count     int // of jobs so far
	ticket    int // the last that one of them got
	changes   int // how often limits have changed in a way that can break a promise
}

type job struct {
	id      string
	ticket  int
	needs   []throttle.Need
	state   string         // waiting, called or running
	called  time.Time      // when its permits were to exist
	ahead   bool           // whether that was later than it was called
	changes int            // of the yard when it was called
	held    map[string]int // of a running job's meters: where the history has its permits
}

func newYard(t *rapid.T, s *stage) *yard {
	y := &yard{
		stage: s, limits: map[string]throttle.Limit{}, jobs: map[string]*job{},
		histories: map[string][]throttletest.Admission{},
	}
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

func (y *yard) submit(t *rapid.T) {
	y.count++
	j := &job{id: fmt.Sprint("j", y.count)}
	for _, name := range slices.Sorted(maps.Keys(y.limits)) {
		if rapid.IntRange(0, 2).Draw(t, "needs "+name) > 0 || name == "l0" {
			key := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
			j.needs = append(j.needs, throttle.Need{Limit: name, Key: key, Cost: rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "cost")})
		}
	}
	y.jobs[j.id] = j
	mustWait := false
	for _, need := range j.needs {
		mustWait = mustWait || y.rdb.Exists(background, "hg:{default}:q:"+need.Limit+"|"+need.Key).Val() == 1
	}
	if y.ask(t, j).OK() && mustWait {
		t.Fatalf("newcomer %s overtook those who wait on its meters", j.id)
	}
}

// ask has a job ask for its permits, and notes what came of it.
func (y *yard) ask(t *rapid.T, j *job) throttle.Decision {
	d := y.acquire(t, j.id, j.needs...)
	switch d.Outcome {
	case throttle.Denied:
		y.keepsTicket(t, j)
		j.state = "waiting"
	case throttle.Allowed:
		y.run(j, d.At.UnixMicro())
	default:
		t.Fatalf("%s: %s", j.id, d)
	}
	return d
}

// keepsTicket: a denied job has a ticket, behind all others at first. It keeps
// that, unless it was called and took a minute to come.
func (y *yard) keepsTicket(t *rapid.T, j *job) {
	record, err := y.rdb.HGet(background, "hg:{default}:jobs", j.id).Result()
	if err != nil {
		t.Fatalf("%s was denied, but is not known: %v", j.id, err)
	}
	text, _, _ := strings.Cut(record, "\n")
	ticket, _ := strconv.Atoi(text)
	switch {
	case ticket == j.ticket:
	case j.state == "waiting" || j.state == "called" && y.now.Before(j.called.Add(time.Minute)):
		t.Fatalf("%s had ticket %d and has %d", j.id, j.ticket, ticket)
	case ticket <= y.ticket:
		t.Fatalf("%s got ticket %d after %d", j.id, ticket, y.ticket)
	}
	j.ticket, y.ticket = ticket, max(ticket, y.ticket)
}

func (y *yard) run(j *job, now int64) {
	j.state, j.held = "running", map[string]int{}
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

func (y *yard) in(state string) (jobs []*job) {
	for _, j := range y.jobs {
		if j.state == state {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *job) int { return cmp.Compare(a.id, b.id) })
	return jobs
}

func (y *yard) anyIn(t *rapid.T, state string) *job {
	jobs := y.in(state)
	if len(jobs) == 0 {
		t.Skip("no job is " + state)
	}
	return jobs[rapid.IntRange(0, len(jobs)-1).Draw(t, state)]
}

// lane names the jobs that need the same meters.
func (j *job) lane() string {
	var ids []string
	for _, need := range j.needs {
		ids = append(ids, need.Limit+"|"+need.Key)
	}
	return strings.Join(ids, "\n")
}

func (y *yard) pump(t *rapid.T) { y.pumpOnce(t) }

// pumpOnce notes who is called. Whoever is called from a lane must be the first
// there.
func (y *yard) pumpOnce(t *rapid.T) (next time.Duration) {
	ahead := rapid.SampledFrom([]time.Duration{0, 0, 40 * time.Millisecond, 2 * time.Second}).Draw(t, "ahead")
	called, next := y.stage.pumpAhead(t, ahead)
	for _, c := range called {
		j := y.jobs[c.ID]
		if j == nil {
			continue // lost; it is called once more
		}
		if j.state == "waiting" {
			for _, before := range y.in("waiting") {
				if before.ticket < j.ticket && before.lane() == j.lane() {
					t.Fatalf("%s was called before %s of the same lane", j.id, before.id)
				}
			}
			j.called, j.ahead, j.changes = y.now.Add(c.In), c.In > 0, y.changes
		}
		j.state = "called"
	}
	return next
}

func (y *yard) waitForPump(t *rapid.T) {
	next := y.pumpOnce(t)
	if next < 0 {
		t.Skip("the pump has nothing to do")
	}
	y.stage.wait(next)
	y.pumpOnce(t)
}

func (y *yard) wait(t *rapid.T) {
	unit := rapid.SampledFrom([]time.Duration{time.Microsecond, 10 * time.Millisecond, time.Second, time.Minute, 5 * time.Hour}).Draw(t, "unit")
	y.stage.wait(time.Duration(rapid.IntRange(1, 20).Draw(t, "units")) * unit)
}

// answer has a called job come. In time, and where nothing has changed since, it
// must be allowed, unless it was called ahead: then one before it may have come
// late.
func (y *yard) answer(t *rapid.T) {
	j := y.anyIn(t, "called")
	if wait := j.called.Sub(y.now); wait > 0 {
		y.stage.wait(wait)
	}
	y.come(t, j)
}

func (y *yard) come(t *rapid.T, j *job) {
	inTime := !j.ahead && y.now.Before(j.called.Add(grant)) && j.changes == y.changes
	if d := y.ask(t, j); inTime && !d.OK() {
		t.Fatalf("%s was called at %s and came at %s: %s", j.id, j.called, y.now, d)
	}
}

// comeEarly has a waiting job ask without having been called. It must not pass
// those before it.
func (y *yard) comeEarly(t *rapid.T) {
	j := y.anyIn(t, "waiting")
	if !y.ask(t, j).OK() {
		return
	}
	for _, before := range y.in("waiting") {
		if before.ticket < j.ticket && before.lane() == j.lane() {
			t.Fatalf("%s ran before %s of the same lane", j.id, before.id)
		}
	}
}

// lose has a called job never come.
func (y *yard) lose(t *rapid.T) { delete(y.jobs, y.anyIn(t, "called").id) }

func (y *yard) forget(t *rapid.T) {
	j := y.anyIn(t, rapid.SampledFrom([]string{"waiting", "called"}).Draw(t, "state"))
	delete(y.jobs, j.id)
	if err := y.stage.jobs.Forget(background, j.id); err != nil {
		t.Fatalf("%v", err)
	}
}

func (y *yard) finish(t *rapid.T) { y.end(t, y.anyIn(t, "running")) }

func (y *yard) end(t *rapid.T, j *job) {
	delete(y.jobs, j.id)
	if err := y.Free(background, j.id, j.needs...); err != nil {
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

func (y *yard) judge(t *rapid.T) {
	for meter, history := range y.histories {
		if err := throttletest.Check(y.limits[meter[:2]], history); err != nil {
			t.Fatalf("%v\n%v", err, history)
		}
	}
}

// drain lets everything run that still waits, calling the pump only when it is
// due, and looks for traces.
func (y *yard) drain(t *rapid.T) {
	for name := range y.limits {
		if err := y.Resume(background, name); err != nil {
			t.Fatalf("%v", err)
		}
	}
	y.changes++
	for range 20 * (y.count + 10) {
		next := y.pumpOnce(t)
		answered := false
		for _, j := range y.in("called") {
			if wait := j.called.Sub(y.now); wait > 0 {
				next = min(next, wait)
				continue
			}
			y.come(t, j)
			answered = true
		}
		for _, j := range y.in("running") {
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
		y.stage.wait(max(next, 10*time.Millisecond))
	}
	y.judge(t)
	if len(y.jobs) > 0 {
		t.Fatalf("%d jobs never ran, first %s", len(y.jobs), y.in("waiting")[0].id)
	}
	left := y.traces(t)
	if left = slices.DeleteFunc(left, func(key string) bool { return strings.HasPrefix(key, "blocked:") }); len(left) > 0 {
		t.Fatalf("left over: %v", left)
	}
}

// inOrder checks what Redis keeps of waiting jobs against itself.
func (y *yard) inOrder(t *rapid.T) {
	const prefix = "hg:{default}:"
	hash := func(name string) map[string]string { return y.rdb.HGetAll(background, prefix+name).Val() }
	members := func(name string) []string { return y.rdb.ZRange(background, prefix+name, 0, -1).Val() }
	records, at, due := hash("jobs"), hash("at"), members("due")
	grants, limbo := members("grants"), members("limbo")

	demand, granted, lanes := map[string]int{}, map[string]int{}, map[string]int{}
	for id, record := range records {
		fields := strings.SplitN(record, "\n", 5)
		lane := fields[4]
		_, err := y.rdb.ZRank(background, prefix+"lane:"+lane, id).Result()
		places := 0
		for _, here := range []bool{err == nil, slices.Contains(grants, id), slices.Contains(limbo, id)} {
			if here {
				places++
			}
		}
		if places != 1 {
			t.Fatalf("job %s stands in %d places", id, places)
		}
		if err == nil {
			lanes[lane]++
		}
		for i, cost := range strings.Split(fields[2], ",") {
			n, _ := strconv.Atoi(cost)
			meter := strings.Split(lane, "\n")[i]
			demand[meter] += n
			if slices.Contains(grants, id) {
				granted[meter] += n
			}
		}
	}
	if len(grants)+len(limbo) > len(records) {
		t.Fatalf("grants %v and limbo %v of jobs without a record: %v", grants, limbo, records)
	}
	same(t, "demand", hash("demand"), demand)
	same(t, "reserved", hash("reserved"), granted)
	if len(at) != len(lanes) {
		t.Fatalf("lanes %v wait, those with jobs are %v", at, lanes)
	}
	for lane, n := range lanes {
		if got := y.rdb.ZCard(background, prefix+"lane:"+lane).Val(); int(got) != n {
			t.Fatalf("lane %q has %d members, %d of them known", lane, got, n)
		}
		meter := at[lane]
		if !slices.Contains(members("q:"+meter), lane) || !slices.Contains(due, meter) {
			t.Fatalf("lane %q waits on %q, which does not know it or is not due", lane, meter)
		}
	}
	queued := 0
	for _, key := range y.rdb.Keys(background, prefix+"q:*").Val() {
		queued += int(y.rdb.ZCard(background, key).Val())
	}
	if queued != len(at) {
		t.Fatalf("%d lanes stand in queues, %d wait", queued, len(at))
	}
}

func same(t *rapid.T, what string, counters map[string]string, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for id, text := range counters {
		got[id], _ = strconv.Atoi(text)
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%s is %v, by the jobs %v", what, got, want)
	}
}
