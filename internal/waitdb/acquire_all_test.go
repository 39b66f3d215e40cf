package waitdb_test

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestAcquireAll_LikeOneByOne: the script answers jobs of one call like jobs of
// many, and leaves the same behind, whatever they need and however they stand.
func TestAcquireAll_LikeOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	aloneAndTogether(t, (*pair).ask, (*pair).ask, (*pair).askAll, (*pair).askAll)
}

// Calls of Allow that go together are answered as if they had been made one after the other,
// also where jobs wait.
func TestAllow_LikeOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	aloneAndTogether(t, (*pair).ask, (*pair).allow, (*pair).allow)
}

// aloneAndTogether takes some of the steps, and some that change what is asked for.
func aloneAndTogether(t *testing.T, steps ...func(*pair, *rapid.T)) {
	steps = append(steps, (*pair).wait, (*pair).call, (*pair).pause)
	for name, fixture := range map[string]func(redistest.TB) *fixture{"miniredis": miniFixture, "redis": realFixture} {
		t.Run(name, func(t *testing.T) {
			limittest.FewerChecks(t)
			alone, together := fixture(t), fixture(t)
			rapid.Check(t, func(t *rapid.T) {
				w := newPair(t, alone, together)
				for range rapid.IntRange(1, 12).Draw(t, "steps") {
					rapid.SampledFrom(steps).Draw(t, "step")(w, t)
				}
				w.same(t)
			})
		})
	}
}

// pair is two fixtures of the same jobs: on one each asks alone.
type pair struct {
	alone, together *fixture
	kinds           []pairKind
	calls           int
}

// pairKind is what a group of jobs asks for.
type pairKind struct {
	headStart int
	maxWait   time.Duration
	ahead     time.Duration
	needs     []throttle.Need
}

func newPair(t *rapid.T, alone, together *fixture) *pair {
	w := &pair{alone: alone, together: together}
	limits := rapid.IntRange(1, 3).Draw(t, "limits")
	for _, s := range w.both() {
		s.restart(t)
	}
	for i := range limits {
		l := throttle.Limit{Name: fmt.Sprintf("l%d", i), Kind: rapid.SampledFrom(limittest.Kinds).Draw(t, "kind"), Capacity: rapid.IntRange(2, 6).Draw(t, "capacity")}
		if l.Kind != throttle.Concurrency {
			l.Rate = throttle.PerSecond(rapid.IntRange(2, 6).Draw(t, "rate"))
		}
		if l.Kind != throttle.Concurrency && l.Kind != throttle.Funnel && l.Kind != throttle.TokenBucket {
			l.Capacity = 0
		}
		for _, s := range w.both() {
			if err := s.lanes.Define(background, l); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range rapid.IntRange(1, 4).Draw(t, "kinds of jobs") {
		k := pairKind{headStart: rapid.SampledFrom([]int{0, 0, -1000}).Draw(t, "head start")}
		if rapid.IntRange(0, 3).Draw(t, "patient") == 0 {
			k.maxWait = time.Duration(rapid.IntRange(1, 3).Draw(t, "max wait")) * time.Second
		}
		if rapid.Bool().Draw(t, "ahead") {
			k.ahead = 2 * waitdb.Advance
		}
		for i := range limits {
			if i == 0 || rapid.Bool().Draw(t, "needs more") {
				k.needs = append(k.needs, throttle.Need{Limit: fmt.Sprintf("l%d", i), Key: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), Cost: rapid.IntRange(1, 3).Draw(t, "cost")})
			}
		}
		w.kinds = append(w.kinds, k)
	}
	return w
}

func (w *pair) both() []*fixture { return []*fixture{w.alone, w.together} }

// ask has some jobs ask, new ones and such as have asked before.
func (w *pair) ask(t *rapid.T) {
	var groups [][]any
	var all []any
	for range rapid.IntRange(1, 3).Draw(t, "groups") {
		k := rapid.SampledFrom(w.kinds).Draw(t, "kind")
		maxWait := int64(-1)
		if k.maxWait > 0 {
			maxWait = k.maxWait.Microseconds()
		}
		ids := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 6).Draw(t, "jobs")
		group := func(ids ...int) []any {
			args := []any{len(ids), "default", k.headStart, maxWait, grant.Microseconds(), k.ahead.Microseconds(), 0, 0, 0, "", len(k.needs)}
			for _, n := range k.needs {
				args = append(args, n.Limit, n.Key, n.Cost)
			}
			for _, id := range ids {
				args = append(args, fmt.Sprint("job", id), -1)
			}
			return args
		}
		for _, id := range ids {
			groups = append(groups, group(id))
		}
		all = append(all, group(ids...)...)
	}
	run := func(s *fixture, args []any) []any {
		w.calls++
		replies, err := script.New("lanes/acquire").Run(background, s.rdb, []string{hg("")}, append([]any{"", fmt.Sprint("caller", w.calls), 1}, args...)...).Slice()
		if err != nil {
			t.Fatal(err)
		}
		return replies
	}
	var alone []any
	for _, group := range groups {
		alone = append(alone, run(w.alone, group)...)
	}
	if diff := gocmp.Diff(alone, run(w.together, all)); diff != "" {
		t.Fatalf("what jobs are answered if they ask alone (-) and together (+):\n%s", diff)
	}
}

// askAll has jobs of all kinds, in any order, ask by way of the limiters: so those of plain
// limits go the plain way.
func (w *pair) askAll(t *rapid.T) {
	var asks []waitdb.AcquireRequest
	for _, id := range rapid.SliceOfNDistinct(rapid.IntRange(0, 20), 1, 12, rapid.ID).Draw(t, "jobs") {
		k := w.kinds[id%len(w.kinds)] // who changes it leaves a lane behind
		job := waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: fmt.Sprint("same", id)}, MaxWait: k.maxWait, Grant: grant}
		if k.headStart < 0 {
			job.Priority = waitdb.High
		}
		asks = append(asks, waitdb.AcquireRequest{Job: job, Needs: k.needs})
	}
	var alone []waitdb.AcquireResult
	for _, a := range asks {
		alone = append(alone, w.alone.lanes.AcquireAll(background, a)...)
	}
	together := w.together.lanes.AcquireAll(background, asks...)
	for i := range together {
		alone[i].Holder, together[i].Holder = anyCaller(alone[i].Holder), anyCaller(together[i].Holder)
	}
	if diff := gocmp.Diff(alone, together, cmpopts.IgnoreFields(waitdb.Decision{}, "TakenAt"), cmpopts.IgnoreUnexported(throttle.Decision{}, throttle.KeyState{})); diff != "" {
		t.Fatalf("what jobs are answered that ask alone (-) and together (+):\n%s", diff)
	}
}

// anyCaller is a holder, of whatever call: its queue and its job.
func anyCaller(holder string) string {
	lines := strings.SplitN(holder, "\n", 3)
	return strings.Join(lines[:min(2, len(lines))], "\n")
}

// same sees that both fixtures have the same data, but for what callers remember, and
// the names of holders, in which callers are.
func (w *pair) same(t *rapid.T) {
	if diff := gocmp.Diff(contents(t, w.alone.rdb), contents(t, w.together.rdb)); diff != "" {
		t.Fatalf("what is left behind by jobs that ask alone (-) and together (+):\n%s", diff)
	}
}

// birthOfFastPath matches the birth of a meter as lua/limits/fast_path.lua writes it: with a point
// between seconds and microseconds, where other scripts write none.
var birthOfFastPath = regexp.MustCompile(`^(\d{10})\.(\d{6}) `)

// contents are the values of all keys, but for what differs between any two calls.
func contents(t *rapid.T, rdb redis.UniversalClient) map[string]any {
	all := redistest.Contents(t, rdb)
	for key, value := range all {
		if state, ok := value.(string); ok && strings.HasPrefix(key, hg("m:")) {
			all[key] = birthOfFastPath.ReplaceAllString(state, "$1$2 ")
		}
		if scores, ok := value.([]redis.Z); ok {
			for i, z := range scores {
				if strings.HasPrefix(key, hg("m:")) {
					scores[i].Member = anyCaller(z.Member.(string))
				}
			}
			slices.SortFunc(scores, func(a, b redis.Z) int {
				return cmp.Or(cmp.Compare(a.Score, b.Score), strings.Compare(a.Member.(string), b.Member.(string)))
			})
		}
	}
	maps.DeleteFunc(all, func(key string, _ any) bool {
		return strings.HasPrefix(key, hg("admitted:")) || slices.Contains([]string{hg("leader"), hg("epoch"), hg("changelog")}, key)
	})
	return all
}

func (w *pair) wait(t *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond
	for _, s := range w.both() {
		s.wait(d)
	}
}

// call gives the waiting jobs their turns.
func (w *pair) call(t *rapid.T) {
	alone, together := w.alone.pumped(t), w.together.pumped(t)
	if diff := gocmp.Diff(alone, together, cmpopts.IgnoreFields(waitdb.Decision{}, "TakenAt"), cmpopts.IgnoreUnexported(throttle.Decision{}, throttle.KeyState{})); diff != "" {
		t.Fatalf("granted (-alone +together):\n%s", diff)
	}
}

func (w *pair) pause(t *rapid.T) {
	pause := rapid.Bool().Draw(t, "pause")
	for _, s := range w.both() {
		var err error
		if pause {
			err = s.lanes.Pause(background, "l0")
		} else {
			err = s.lanes.Resume(background, "l0")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// allow makes some calls, of which some only look.
func (w *pair) allow(t *rapid.T) {
	var calls [][]any
	for range rapid.IntRange(1, 6).Draw(t, "calls") {
		w.calls++
		needs := rapid.SampledFrom(w.kinds).Draw(t, "kind").needs
		call := []any{fmt.Sprint("outside\ncall\n", w.calls), len(needs)}
		for _, n := range needs {
			call = append(call, n.Limit, n.Key, n.Cost*rapid.SampledFrom([]int{0, 1, 1}).Draw(t, "takes"))
		}
		calls = append(calls, call)
	}
	run := func(s *fixture, calls ...[]any) []any {
		replies, err := script.New("limits/allow").Run(background, s.rdb, []string{hg("")}, append([]any{""}, slices.Concat(calls...)...)...).Slice()
		if err != nil {
			t.Fatal(err)
		}
		return replies
	}
	var alone []any
	for _, call := range calls {
		alone = append(alone, run(w.alone, call)...)
	}
	if diff := gocmp.Diff(alone, run(w.together, calls...)); diff != "" {
		t.Fatalf("what calls are answered that go alone (-) and together (+):\n%s", diff)
	}
}

// A damaged meter counts as an unused one. It stops no call that goes
// with the one that meets it, and no turn of another lane.
func TestAcquireAll_DamagedMeter(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		log := throttle.Limit{Name: "log", Kind: throttle.SlidingLog, Rate: throttle.PerMinute(10)}
		bucket := throttle.Limit{Name: "bucket", Kind: throttle.TokenBucket, Rate: throttle.PerMinute(10), Capacity: 10, Adapt: &throttle.Adapt{}}
		define(t, s, log, bucket)
		damage := func() {
			must(t, s.rdb.Set(background, hg("m:sliding_log:log|bad"), "x", 0).Err()) // of a wrong type
			must(t, s.rdb.Set(background, hg("m:token_bucket:bucket|bad"), "x", 0).Err())
			must(t, s.rdb.HSet(background, hg("limit:bucket"), "overrides", "1").Err())
			must(t, s.rdb.HSet(background, hg("overrides:bucket"), "bad", "x").Err())
		}
		for _, limit := range []string{"log", "bucket"} {
			damage()
			var asks []waitdb.AcquireRequest
			for i, key := range []string{"bad", "a", "b"} { // what goes before a key of a wrong type is taken twice
				need := throttle.Need{Limit: limit, Key: key, Cost: 10}
				asks = append(asks, waitdb.AcquireRequest{Job: job(fmt.Sprint(limit, i)), Needs: []throttle.Need{need}}, waitdb.AcquireRequest{Job: job(fmt.Sprint(limit, i, "waits")), Needs: []throttle.Need{need}})
			}
			for i, a := range s.lanes.AcquireAll(background, asks...) {
				if a.Err != nil || a.OK() != (i%2 == 0) {
					t.Errorf("job %d at %s: %v, %v", i, limit, a.Decision, a.Err)
				}
			}
		}
		damage()
		s.wait(time.Minute)
		granted := s.pumped(t)
		slices.Sort(granted)
		expect(t, "granted", granted, []string{"bucket0waits", "bucket1waits", "bucket2waits", "log0waits", "log1waits", "log2waits"})
	})
}
