package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// rig calls scripts one by one, and records what each costs.
type rig struct {
	ctx       context.Context
	rdb       *redis.Client
	calls     int
	callgrind *callgrind // nil counts time and commands

	asynq   asynqScripts
	lanes   *waitdb.DB
	tallies []tally
	kir     float64 // thousands of instructions that callgrind has counted so far
	err     error
}

// jobWay lists the cases that make up a whole job. A case of 8 jobs counts as an eighth: the job
// shares the call with seven others.
type jobWay struct {
	name, system string
	steps        []string
}

var jobWays = []jobWay{
	{"a throttled job, enqueue to done", "headgate", []string{
		"enqueue", "dequeue, 8 jobs", "acquire, denied, 8 jobs", "put_back, 8 jobs", "grant, 8 jobs", "promote, 8 jobs",
		"dequeue, 8 jobs", "acquire, called, 8 jobs", "done",
	}},
	{"an undenied job, 1 limit", "headgate", []string{"dequeue, 8 jobs", "acquire, 1 limit, 8 jobs", "done"}},
	{"an undenied job, 3 limits", "headgate", []string{"dequeue, 8 jobs", "acquire, 3 limits, 8 jobs", "done"}},
	{"an undenied job, 1 limit", "redis_rate", []string{"dequeue", "Allow", "done"}},
	{"an undenied job, 3 limits", "redis_rate", []string{"dequeue", "Allow", "Allow", "Allow", "done"}},
	{"a job", "asynq", []string{"dequeue", "done"}},
}

const rigQueue = "rig"

// rigID returns an ID as long as those of asynq.
func rigID(i int) string { return fmt.Sprintf("8f14e45f-ceea-467f-a0e6-%012d", i) }

// check keeps the first error.
func (r *rig) check(err error) {
	if r.err == nil && err != nil && !errors.Is(err, redis.Nil) {
		r.err = err
	}
}

// each calls f for each job.
func (r *rig) each(from, to int, f func(i int) error) {
	for i := from; i < to; i++ {
		r.check(f(i))
	}
}

// measure adds the cost of f, which makes that many calls, to a case.
func (r *rig) measure(system, name string, calls int, f func()) {
	if r.err != nil {
		return
	}
	before, err := r.spent()
	r.check(err)
	f()
	after, err := r.spent()
	r.check(err)
	i := slices.IndexFunc(r.tallies, func(t tally) bool { return t.name == name })
	if i < 0 {
		i, r.tallies = len(r.tallies), append(r.tallies, tally{system: system, name: name})
	}
	t := &r.tallies[i]
	commands := (after.commands - before.commands - 1) / float64(calls) // without the INFO of the first spent
	if t.calls == 0 || commands < t.commands {
		t.commands = commands // a call that the machine has delayed can need more
	}
	t.calls += calls
	t.usec += after.usec - before.usec
	t.kir += after.kir - before.kir
}

// spending is what the server has done, so far or for a case. kir is thousands of instructions.
type spending struct{ commands, usec, kir float64 }

// tally is the cost of all calls of a case; commands are those of the call that needed the fewest.
type tally struct {
	system, name string
	calls        int
	spending
}

// row returns the mean of a tally. counted reports whether only instructions were measured.
func (t tally) row(counted bool) scriptRow {
	n := float64(t.calls)
	if counted {
		return scriptRow{Kir: new(t.kir / n)}
	}
	return scriptRow{Case: t.name, System: t.system, Scripts: 1, Commands: t.commands, Usec: t.usec / n}
}

func (r *rig) spent() (s spending, err error) {
	if r.callgrind != nil {
		kir, err := r.callgrind.count(r.ctx)
		r.kir += kir
		return spending{kir: r.kir}, err
	}
	info, err := r.rdb.InfoMap(r.ctx, "stats", "commandstats").Result()
	if err != nil {
		return s, err
	}
	s.commands, err = strconv.ParseFloat(info["Stats"]["total_commands_processed"], 64)
	for field := range strings.SplitSeq(info["Commandstats"]["cmdstat_evalsha"], ",") {
		if usec, ok := strings.CutPrefix(field, "usec="); ok {
			s.usec, _ = strconv.ParseFloat(usec, 64)
		}
	}
	return s, err
}

// walk measures all cases.
func (r *rig) walk() error {
	r.check(r.rdb.FlushAll(r.ctx).Err())
	r.lanes = waitdb.New(throttle.New(r.rdb, throttle.Options{Logger: silent}))
	recorded, err := recordAsynq(r.ctx, r.rdb.Options())
	r.asynq = recorded
	r.check(err)
	if r.err == nil {
		r.walkOpen()
	}
	if r.err == nil {
		r.walkShut()
	}
	return r.err
}

// walkOpen measures calls that are never denied.
func (r *rig) walkOpen() {
	var needs []throttle.Need
	for i := range 3 {
		limit := throttle.Limit{Name: fmt.Sprintf("open-%d", i), Kind: throttle.Funnel, Rate: throttle.PerSecond(roomy), Capacity: roomy}
		r.check(r.lanes.Define(r.ctx, limit))
		needs = append(needs, throttle.Need{Limit: limit.Name})
	}
	rate := redis_rate.NewLimiter(r.rdb)
	rateAllow := func(int) error { _, err := rate.Allow(r.ctx, "open", redis_rate.PerSecond(roomy)); return err }
	allow := func(k int) func(int) error {
		return func(int) error { return allowed(r.lanes.AllowAll(r.ctx, needs[:k]...)) }
	}
	r.check(script.New("asynq/dequeue").Load(r.ctx, r.rdb).Err())
	for _, f := range []func(int) error{rateAllow, allow(1), allow(3), func(int) error { return r.acquireFast(needs) }} { // load all scripts
		r.check(f(0))
	}
	for from := 0; from < r.calls; from += rigBatch { // few jobs are active at once, as with a worker
		each := func(f func(int) error) func() { return func() { r.each(from, from+rigBatch, f) } }
		for _, c := range []struct {
			system, name string
			call         func(int) error
		}{
			{"asynq", "enqueue", r.enqueue},
			{"asynq", "dequeue", r.dequeue},
			{"redis_rate", "Allow", rateAllow},
			{"headgate", "allow, 1 limit", allow(1)},
			{"headgate", "allow, 3 limits", allow(3)},
			{"asynq", "done", r.done},
			{"asynq", "dequeue, empty", r.dequeue},
		} {
			r.measure(c.system, c.name, rigBatch, each(c.call))
		}
		each(r.enqueue)()
		r.measure("headgate", "dequeue, 8 jobs", rigBatch/rigTurns, func() { r.each(0, rigBatch/rigTurns, r.take) })
		each(r.done)()
		for _, k := range []int{1, 3} {
			r.measure("headgate", "acquire, "+display.Count(k, "limit")+", 8 jobs", rigBatch/rigTurns, func() {
				r.each(0, rigBatch/rigTurns, func(int) error { return r.acquireFast(needs[:k]) })
			})
		}
	}
}

// acquireFast acquires permits for several jobs by the fast path.
func (r *rig) acquireFast(needs []throttle.Need) error {
	needs, failed := throttle.Normalize(needs...)
	for _, result := range r.lanes.Internals().TryFast(r.ctx, slices.Repeat([][]throttle.Need{needs}, rigTurns)) {
		failed = cmp.Or(failed, allowed(result.Decision, result.Err))
	}
	return failed
}

// acquireAll acquires permits for several jobs in one call.
func (r *rig) acquireAll(from, to int, need throttle.Need) error {
	args := []any{"", uuid.NewString(), 1, to - from, rigQueue, 0, -1, 1_000_000, 80_000, 0, 0, 0, "", 1, need.Limit, need.Key, 1}
	for i := from; i < to; i++ {
		args = append(args, rigID(i), -1)
	}
	return script.New("lanes/acquire").Run(r.ctx, r.rdb, []string{"hg:{default}:"}, args...).Err()
}

// rigBatch is how many jobs are active at once.
const rigBatch = 24

// rigTurns is the number of jobs, or of turns, in one call.
const rigTurns = 8

// walkShut measures jobs that are denied and granted later, with eight jobs in a call.
func (r *rig) walkShut() {
	limit := throttle.Limit{Name: "shared", Kind: throttle.Funnel, Rate: throttle.PerHour(1), Capacity: 1}
	r.check(r.lanes.Define(r.ctx, limit))
	need := throttle.Need{Limit: limit.Name}
	for i := range 2 { // one takes the permit, one is first in the lane
		r.check(r.acquireAll(1_000_000+i, 1_000_001+i, need))
	}
	process := uuid.NewString()
	eight := func(name string, from int, call func(from, to int) error) {
		r.measure("headgate", name+", 8 jobs", 1, func() { r.check(call(from, from+rigTurns)) })
	}
	for from := 0; from < r.calls; from += rigTurns {
		r.each(from, from+rigTurns, r.enqueue)
		r.each(from, from+rigTurns, r.dequeue)
		eight("acquire, denied", from, func(from, to int) error { return r.acquireAll(from, to, need) })
		eight("put_back", from, r.putBack)
	}
	limit.Rate, limit.Capacity = throttle.PerSecond(roomy), roomy
	r.check(r.lanes.Set(r.ctx, limit))
	lane := rigQueue + "\n" + limit.Name + "|"
	r.lead(process)
	r.grant(process, lane, 1) // the first of the lane is not in asynq
	for from := 0; from < r.calls && r.err == nil; from += rigTurns {
		var granted []throttle.JobID
		r.lead(process) // because the calls of the jobs before have cut the lease
		eight("grant", from, func(int, int) error { granted = r.grant(process, lane, rigTurns); return nil })
		eight("promote", from, func(int, int) error {
			_, err := asynqdb.New(r.rdb).Promote(r.ctx, granted...)
			return err
		})
		r.each(from, from+rigTurns, r.dequeue)
		eight("acquire, called", from, func(from, to int) error { return r.acquireAll(from, to, need) })
		r.each(from, from+rigTurns, r.done)
	}
}

func (r *rig) lead(process string) {
	_, err := r.lanes.BecomeLeader(r.ctx, process, time.Hour, -1, "data")
	r.check(err)
}

// grant grants turns to a lane, and returns the granted jobs.
func (r *rig) grant(process, lane string, jobs int) (granted []throttle.JobID) {
	turns := slices.Repeat([]fairqueue.Turn{{Lane: lane, Advance: waitdb.Advance.Microseconds(), Held: []int64{0}}}, jobs)
	_, results, leads, err := r.lanes.Grant(r.ctx, process, turns)
	r.check(err)
	if err == nil && !leads { // the machine stood still for longer than the lease
		r.lead(process)
		_, results, _, err = r.lanes.Grant(r.ctx, process, turns)
		r.check(err)
	}
	for _, result := range results {
		if result.Outcome != fairqueue.Granted {
			r.check(fmt.Errorf("grant: %v", result))
		}
		granted = append(granted, throttle.JobID{Queue: rigQueue, ID: result.Job})
	}
	return granted
}

func (r *rig) enqueue(i int) error { return r.asynq.enqueue.run(r.ctx, r.rdb, rigID(i)) }
func (r *rig) dequeue(int) error   { return r.asynq.dequeue.run(r.ctx, r.rdb, rigID(0)) }

// take dequeues eight jobs with headgate.
func (r *rig) take(int) error {
	_, err := asynqdb.New(r.rdb).Dequeue(r.ctx, asynqdb.NewDequeue(rigQueue, time.Now().Add(asynqdb.LeaseTime).Unix(), false), rigTurns)
	return err
}

func (r *rig) done(i int) error { return r.asynq.done.run(r.ctx, r.rdb, rigID(i)) }

func (r *rig) putBack(from, to int) error {
	var jobs []*asynqdb.PutBack
	for i := from; i < to; i++ {
		message := bytes.ReplaceAll(r.asynq.message, []byte(r.asynq.enqueue.id), []byte(rigID(i)))
		jobs = append(jobs, &asynqdb.PutBack{Job: asynqdb.Job{JobID: throttle.JobID{Queue: rigQueue, ID: rigID(i)}, Msg: message}, At: time.Now().Add(time.Hour), Scope: "hg:{default}:"})
	}
	asynqdb.New(r.rdb).PutBack(r.ctx, rigQueue, jobs...)
	return jobs[0].Err
}
