package waitdb_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

type simJob struct {
	waitdb.Job
	needs    []throttle.Need
	state    string // waiting, granted, running, or over: its time is up, and it is in no lane
	ticket   int
	known    bool           // whether Redis knows it, as far as this test does
	promoted bool           // whether it was promoted that it is granted
	late     bool           // whether it was promoted that it is too late
	since    time.Time      // when it was denied first
	ahead    bool           // whether its permits were to exist later than it was granted
	changes  int            // of the simulation when it was granted
	holder   string         // of its leases
	held     map[string]int // of a running job's meters: where the history has its permits
}

// submit has a new job ask. The same IDs arrive in both queues.
func (y *simulation) submit(t *rapid.T) {
	j := &simJob{Job: waitdb.Job{JobID: throttle.JobID{Queue: fmt.Sprint("q", y.count%2), ID: fmt.Sprint("j", y.count/2)}}}
	y.count++
	j.Priority = rapid.SampledFrom([]waitdb.Priority{waitdb.Normal, waitdb.Normal, waitdb.High, waitdb.Low}).Draw(t, "priority")
	j.MaxAdvance = 2 * waitdb.Advance
	j.Grant = rapid.SampledFrom([]time.Duration{waitdb.DefaultGrant, 10 * time.Millisecond, 30 * time.Second}).Draw(t, "grant")
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
	led := y.exists("leader")
	// Its call repeated is that of a waiting job, which nothing delays if
	// no process leads.
	if y.ask(t, j).OK() && mustWait && (led || !y.lost.Did) {
		t.Fatalf("newcomer %s overtook those who wait on its meters", j.JobID)
	}
}

// ask has a job ask for its permits, and notes the result.
func (y *simulation) ask(t *rapid.T, j *simJob) waitdb.Decision {
	over := y.timeIsUp(j)
	y.lost.Did = false
	y.lost.Next = rapid.IntRange(0, 4).Draw(t, "reply is lost") == 0
	d := y.acquireJob(t, j.Job, j.needs...)
	y.lost.Next = false
	if over && d.Outcome != throttle.Expired {
		t.Fatalf("%s, which has waited since %s and may for %s: %s", j.JobID, j.since, j.MaxWait, d)
	}
	switch d.Outcome {
	case throttle.Denied:
		y.keepsTicket(t, j)
		j.state, j.known, j.promoted, j.late = "waiting", true, false, false
	case throttle.Allowed:
		y.run(j, d)
	case throttle.Expired:
		if !over && (j.known || j.MaxWait == 0) { // what hands have edited may still have its record
			t.Fatalf("%s, which has waited since %s and may for %s: %s", j.JobID, j.since, j.MaxWait, d)
		}
		delete(y.jobs, j.JobID)
	default:
		t.Fatalf("%s: %s", j.JobID, d)
	}
	return d
}

// timeIsUp reports whether a job has waited for as long as it may.
func (y *simulation) timeIsUp(j *simJob) bool {
	return j.known && j.MaxWait > 0 && y.now.Sub(j.since) >= j.MaxWait
}

// step is from one ticket to the next.
const step = 65536

// keepsTicket: a denied job has a ticket, which is the next of its lane with the
// head start that it has, or the one that it had; or a lower one where hands took it out.
func (y *simulation) keepsTicket(t *rapid.T, j *simJob) {
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
	start := map[waitdb.Priority]int{waitdb.High: -waitdb.HeadStart * step, waitdb.Low: waitdb.HeadStart * step}[j.Priority]
	moved := since == j.since.UnixMicro() && ticket < last+start // it is ordered by what it has waited
	if j.known && ticket != j.ticket || !j.known && ticket != j.ticket && ticket != last+start && !moved {
		t.Fatalf("%s had ticket %d and has %d, the last of its lane is %d", j.JobID, j.ticket, ticket, last)
	}
	j.ticket, j.since = ticket, time.UnixMicro(since)
}

func (y *simulation) run(j *simJob, d waitdb.Decision) {
	j.state, j.held, j.holder = "running", map[string]int{}, d.Holder
	now := d.At.Add(d.BeginIn).UnixMicro()
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

// in lists the jobs that a state, or more that is reported of them, is true of.
func (y *simulation) in(is func(*simJob) bool) (jobs []*simJob) {
	for _, j := range y.jobs {
		if is(j) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *simJob) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.ID, b.ID))
	})
	return jobs
}

func waiting(j *simJob) bool   { return j.state == "waiting" }
func isGranted(j *simJob) bool { return j.state == "granted" }
func running(j *simJob) bool   { return j.state == "running" }
func promoted(j *simJob) bool  { return j.state != "running" && (j.promoted || j.late) }

func (y *simulation) any(t *rapid.T, what string, is func(*simJob) bool) *simJob {
	jobs := y.in(is)
	if len(jobs) == 0 {
		t.Skip("no job is " + what)
	}
	return jobs[rapid.IntRange(0, len(jobs)-1).Draw(t, what)]
}

// lane is the name of those that need the same meters.
func (j *simJob) lane() string {
	lane := j.Queue
	for _, need := range j.needs {
		lane += "\n" + need.Limit + "|" + need.Key
	}
	return lane
}

// answer has a granted job arrive. What is reserved for it, it must get, where
// nothing has changed since; unless it was granted ahead: then one before it may
// have arrived late.
func (y *simulation) answer(t *rapid.T) { y.arrive(t, y.any(t, "promoted", promoted)) }

func (y *simulation) arrive(t *rapid.T, j *simJob) {
	until, err := y.rdb.ZScore(background, hg("granted:"+j.lane()), j.ID).Result()
	reserved := err == nil && int64(until) > y.now.UnixMicro()
	sure := reserved && !j.ahead && j.changes == y.changes && !y.timeIsUp(j)
	if d := y.ask(t, j); sure && !d.OK() {
		t.Fatalf("%s had permits reserved until %.0f and arrived at %d: %s", j.JobID, until, y.now.UnixMicro(), d)
	}
}

// arriveEarly has a waiting job ask without having been granted. If a process leads
// it keeps waiting; if none does it must not pass those before it.
func (y *simulation) arriveEarly(t *rapid.T) {
	j := y.any(t, "waiting", waiting)
	led := y.exists("leader")
	rank, err := y.rdb.ZRank(background, hg("lane:"+j.lane()), j.ID).Result()
	known := j.known && j.MaxWait == 0 // else it may be as new
	if y.ask(t, j).OK() && known && err == nil && (led || rank > 0) {
		t.Fatalf("%s ran, the %dth of its lane; a process leads: %t", j.JobID, rank+1, led)
	}
}

// lose has a granted job never arrive.
func (y *simulation) lose(t *rapid.T) { delete(y.jobs, y.any(t, "granted", isGranted).JobID) }

func (y *simulation) forget(t *rapid.T) {
	j := y.any(t, "waiting or granted", func(j *simJob) bool { return !running(j) })
	delete(y.jobs, j.JobID)
	if y.overdue(y.kept(), j.Queue) { // perhaps of this one alone, which the dispatcher finds at its next probe
		y.parked[j.Queue] = y.now.Add(probeWithin)
	}
	if _, err := y.fixture.lanes.Forget(background, j.JobID); err != nil {
		t.Fatalf("%v", err)
	}
}

func (y *simulation) finish(t *rapid.T) { y.end(t, y.any(t, "running", running)) }

func (y *simulation) end(t *rapid.T, j *simJob) {
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
