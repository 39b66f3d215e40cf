package waitdb_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// A repeatFixture has a job "it" that needs a slot and a permit of a limit that gives one each 5 s. Other
// jobs have taken the first two permits.
type repeatFixture struct {
	*fixture
	t       *testing.T
	store   *waitdb.DB
	release func() // gives back the slot that the job got last
}

var itsJob = throttle.JobID{Queue: "q", ID: "it"}

func newRepeatFixture(t *testing.T, s *fixture) *repeatFixture {
	l := &repeatFixture{fixture: s, t: t, store: s.lanes, release: func() {}}
	define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: 5 * time.Second}, Capacity: 2},
		throttle.Limit{Name: "slots", Kind: throttle.Concurrency, Capacity: 50, Lease: time.Hour})
	for _, other := range []string{"a", "b"} {
		expect(t, other, l.ask(other).Outcome, allowed)
	}
	return l
}

// ask has a job ask for a permit and a slot. A worker asks so, and so does another one.
func (l *repeatFixture) ask(id string) waitdb.Decision {
	l.t.Helper()
	d, err := l.lanes.Acquire(l.ctx, waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: id}}, one("l"), one("slots"))
	must(l.t, err)
	if d.OK() {
		l.release = func() { must(l.t, l.lanes.Free(l.ctx, d.Holder, one("slots"))) }
	}
	return d
}

// denied has the job wait, whatever became of it.
func (l *repeatFixture) denied() {
	l.wait(time.Millisecond)
	for range 5 {
		if l.ask("it").Outcome == denied {
			return
		}
	}
	l.t.Fatal("the job does not wait")
}

// granted has the job be granted its permits.
func (l *repeatFixture) granted() {
	l.t.Helper()
	l.denied()
	for range 3 {
		l.wait(5 * time.Second)
		_, results, _, err := l.grant()
		must(l.t, err)
		if len(results) == 1 && results[0].Job == "it" && results[0].Outcome == fairqueue.Granted {
			return
		}
	}
	l.t.Fatal("the job is not granted its permits")
}

// grant gives the job's lane its turn.
func (l *repeatFixture) grant() (int64, []fairqueue.Result, bool, error) {
	l.t.Helper()
	lane := l.lane()
	_, err := l.store.BecomeLeader(l.ctx, "p", time.Hour, 0, "epoch")
	must(l.t, err)
	return l.store.Grant(l.ctx, "p", []fairqueue.Turn{{Lane: lane, Held: make([]int64, len(fairqueue.Meters(lane)))}})
}

// lane is the lane of the job, which waits.
func (l *repeatFixture) lane() string {
	l.t.Helper()
	r, found, err := l.store.Record(l.ctx, throttle.JobID{Queue: "q", ID: "it"})
	must(l.t, err)
	if !found {
		l.t.Fatal("the job does not wait")
	}
	return r.Lane
}

// begun has another worker begin the job.
func (l *repeatFixture) begun() {
	l.t.Helper()
	l.granted()
	expect(l.t, "another worker", l.ask("it").Outcome, allowed)
}

// ended has another worker run the job.
func (l *repeatFixture) ended() {
	l.begun()
	l.release()
}

// again deletes the job. One of its name is enqueued, and waits.
func (l *repeatFixture) again() {
	_, err := l.lanes.Forget(l.ctx, itsJob)
	must(l.t, err)
	l.wait(time.Second)
	l.denied()
}

// expired has the job be granted its permits, and not arrive for them.
func (l *repeatFixture) expired() {
	l.granted()
	l.wait(time.Second)
	_, err := l.store.ExpireGrants(l.ctx, []string{l.lane()})
	must(l.t, err)
}

// repeated is a call whose script is sent again.
type repeated struct {
	before   func(l *repeatFixture)
	do       func(l *repeatFixture) error
	gets     bool // the repeat gets what was granted
	numbered bool // the script has the number of its caller's call
}

func repeatedScripts() map[string]repeated {
	it := func(maxWait time.Duration, needs ...throttle.Need) func(l *repeatFixture) error {
		return func(l *repeatFixture) error {
			_, err := l.lanes.Acquire(l.ctx, waitdb.Job{JobID: itsJob, MaxWait: maxWait}, needs...)
			return err
		}
	}
	refused := func(l *repeatFixture) error {
		refusal := waitdb.RateLimit{At: l.now, For: 2 * time.Second, Blocks: []throttle.Need{one("l")}}
		_, err := l.lanes.RateLimited(l.ctx, waitdb.Job{JobID: itsJob}, refusal, one("l"), one("slots"))
		return err
	}
	forget := func(l *repeatFixture) error { _, err := l.lanes.Forget(l.ctx, itsJob); return err }
	return map[string]repeated{
		"acquire: denied":                   {numbered: true, do: it(0, one("l"), one("slots")), gets: true},
		"acquire: allowed":                  {numbered: true, before: func(l *repeatFixture) { l.wait(5 * time.Second) }, do: it(0, one("l"), one("slots"))},
		"acquire: arrives for its permits":  {numbered: true, before: (*repeatFixture).granted, do: it(0, one("l"), one("slots"))},
		"acquire: too late":                 {numbered: true, before: func(l *repeatFixture) { l.denied(); l.wait(2 * time.Second) }, do: it(time.Second, one("l"), one("slots"))},
		"acquire: never":                    {numbered: true, before: (*repeatFixture).denied, do: it(0, throttle.Need{Limit: "l", Key: "k", Cost: 3})},
		"acquire: no limit":                 {numbered: true, before: (*repeatFixture).denied, do: it(0, one("nope"))},
		"refused":                           {numbered: true, before: func(l *repeatFixture) { l.wait(5 * time.Second); l.ask("it") }, do: refused},
		"refused: waits by another attempt": {numbered: true, before: (*repeatFixture).denied, do: refused},
		"forget":                            {before: (*repeatFixture).denied, do: forget},
		"forget: granted":                   {before: (*repeatFixture).granted, do: forget},
		"grant": {numbered: true, before: func(l *repeatFixture) { l.denied(); l.ask("behind"); l.wait(10 * time.Second) }, do: func(l *repeatFixture) error {
			_, _, _, err := l.store.Grant(l.ctx, "p", []fairqueue.Turn{{Lane: l.lane(), Held: make([]int64, len(fairqueue.Meters(l.lane())))}})
			return err
		}},
		"expire": {before: func(l *repeatFixture) { l.granted(); l.wait(time.Second) }, do: func(l *repeatFixture) error {
			_, err := l.store.ExpireGrants(l.ctx, []string{l.lane()})
			return err
		}},
		"late": {
			before: func(l *repeatFixture) { must(l.t, it(time.Second, one("l"), one("slots"))(l)); l.wait(2 * time.Second) },
			do:     func(l *repeatFixture) error { _, _, err := l.store.ExpireWaits(l.ctx, 10); return err },
		},
		"expire_active": {before: (*repeatFixture).expired, do: func(l *repeatFixture) error {
			_, err := l.store.ExpireActive(l.ctx, []fairqueue.GrantedJob{{Queue: "q", ID: "it", Lane: l.lane()}})
			return err
		}},
		"repair": {
			before: func(l *repeatFixture) { l.denied(); l.rdb.HSet(l.ctx, hg("jobs"), "q\nit", "by hand") },
			do: func(l *repeatFixture) error {
				_, _, _, err := l.store.RepairRecords(l.ctx, 0, 10, map[string]int64{})
				return err
			},
		},
		"count_reserved": {
			before: func(l *repeatFixture) { l.granted(); l.rdb.HSet(l.ctx, hg("meters"), "l|k", 3) },
			do: func(l *repeatFixture) error {
				_, err := l.store.RepairReserved(l.ctx, "p", "l|k", []string{l.lane()})
				return err
			},
		},
	}
}

// TestRepeatAfterALostAnswer: a script that is sent again changes nothing, whatever became of its
// job meanwhile: above all if the job waits again, or if another worker has it. A job whose call
// was denied and that was granted its permits since gets them by the repeat.
func TestRepeatAfterALostAnswer(t *testing.T) {
	scripts := repeatedScripts()
	between := map[string]func(l *repeatFixture){
		"nothing": func(*repeatFixture) {}, "granted": (*repeatFixture).granted, "begun": (*repeatFixture).begun, "ended": (*repeatFixture).ended,
		"enqueued again": (*repeatFixture).again, "enqueued again and granted": func(l *repeatFixture) { l.again(); l.granted() },
	}
	onRedis(t, func(t *testing.T, st *fixture) {
		var l *repeatFixture
		var happens func(l *repeatFixture)
		var before, after map[string]any
		st.rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			ofLanes := strings.HasPrefix(cmd.Name(), "eval") && cmd.Args()[2] == 1 // the fast path has the meters' keys, too
			if err != nil || happens == nil || !ofLanes {
				return err
			}
			between := happens
			happens = nil
			between(l)
			before = redistest.Contents(l.t, l.rdb)
			err = next(ctx, cmd)
			after = redistest.Contents(l.t, l.rdb)
			return err
		}))
		for name, s := range scripts {
			for what := range between {
				t.Run(name+"/"+what, func(t *testing.T) {
					st.restart(t)
					l = newRepeatFixture(t, st)
					if s.before != nil {
						s.before(l)
					}
					_, err := l.store.BecomeLeader(l.ctx, "p", time.Hour, 0, "epoch")
					must(t, err)
					happens, before = between[what], nil
					must(t, s.do(l))
					if s.gets && what == "granted" {
						expect(t, "what is reserved", after[hg("meters")], nil)
						return
					}
					if diff := cmp.Diff(before, after); diff != "" || before == nil {
						t.Errorf("the repeat changed what is kept: before (-), after (+)\n%s", diff)
					}
				})
			}
		}
	})
}

// TestLateSending: the first sending of a script arrives after its repeat, and after the caller's next
// calls. It changes nothing.
func TestLateSending(t *testing.T) {
	scripts := repeatedScripts()
	scripts["fast path: allowed"] = repeated{numbered: true, before: func(l *repeatFixture) {
		define(l.t, l.fixture, throttle.Limit{Name: "fast", Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: 5 * time.Second}, Capacity: 2})
	}, do: func(l *repeatFixture) error {
		_, err := l.lanes.Acquire(l.ctx, waitdb.Job{JobID: itsJob}, one("fast"))
		return err
	}}
	then := map[string]func(l *repeatFixture){
		"nothing": func(*repeatFixture) {},
		"a denied call": func(l *repeatFixture) {
			for _, id := range []string{"it", "x", "y"} {
				l.ask(id)
			}
		},
		"a denied call of one limit": func(l *repeatFixture) {
			limit := "l"
			if l.rdb.HExists(l.ctx, hg("summaries"), "fast").Val() {
				limit = "fast"
			}
			for _, id := range []string{"u", "v", "w"} {
				_, err := l.lanes.Acquire(l.ctx, waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: id}}, one(limit))
				must(l.t, err)
				_, err = l.lanes.Forget(l.ctx, throttle.JobID{Queue: "q", ID: id})
				must(l.t, err)
			}
			l.wait(20 * time.Second)
		},
		"an allowed call and a long time": func(l *repeatFixture) {
			l.wait(20 * time.Minute)
			l.ask("z")
			l.wait(20 * time.Minute)
		},
	}
	onRedis(t, func(t *testing.T, st *fixture) {
		late := &redistest.LateSending{}
		st.rdb.AddHook(redistest.Hook(late.Around))
		for name, s := range scripts {
			if !s.numbered {
				continue
			}
			for what, happens := range then {
				t.Run(name+"/"+what, func(t *testing.T) {
					st.restart(t)
					l := newRepeatFixture(t, st)
					if s.before != nil {
						s.before(l)
					}
					_, err := l.store.BecomeLeader(l.ctx, "p", 10*time.Hour, 0, "epoch")
					must(t, err)
					late.Next = func(cmd redis.Cmder) bool { return (cmd.Args()[2] == 1) != strings.HasPrefix(name, "fast") }
					must(t, s.do(l))
					happens(l)
					before := redistest.Contents(l.t, l.rdb)
					if !late.Arrive(l.ctx, l.rdb) {
						t.Fatal("nothing was late")
					}
					if diff := cmp.Diff(before, redistest.Contents(l.t, l.rdb)); diff != "" {
						t.Errorf("the late sending changed what is kept: before (-), after (+)\n%s", diff)
					}
				})
			}
		}
	})
}

// TestLeader_LostReply: if the reply which reports that the lease was taken again is lost, go-redis
// repeats the call, and the repeat returns the same: another process may have led meanwhile.
func TestLeader_LostReply(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, perMinute("l", 1))
		s.acquire(t, "a", one("l"))
		s.acquire(t, "b", one("l"))
		lead := func(process string, seen int64) waitdb.Leadership {
			t.Helper()
			l, err := s.lanes.BecomeLeader(background, process, leaseTime, seen, "epoch")
			must(t, err)
			return l
		}
		seen := lead("one", 0).NewLanes[0].Number
		expect(t, "renewed: again", lead("one", seen).ReadAll, false)
		s.wait(leaseTime)
		lead("two", 0)
		s.wait(leaseTime)
		s.rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if err := next(ctx, cmd); err != nil {
				return err
			}
			return next(ctx, cmd)
		}))
		l := lead("one", seen)
		expect(t, "after a lost reply: again, with all lanes", [2]any{l.ReadAll, len(l.NewLanes)}, [2]any{true, 1})
	})
}
