package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

// stack is one worker process with all its parts, in virtual time or on a real server, and a record
// of what its jobs did.
type stack struct {
	t testing.TB
	redises
	rdb       redis.UniversalClient // the queues'
	limits    redis.UniversalClient // the limiter's
	toQueues  *wire
	toLimiter *wire
	limiter   *spy
	client    *asynq.Client
	tasks     *asynq.Inspector
	server    *Server
	handle    func(ctx context.Context, task *asynq.Task) error
	rule      func(task *asynq.Task) (Rule, error)
	oneClock  bool // the limiter's clock is the process's, and no other process runs meanwhile
	enqueued  int
	mu        sync.Mutex
	runs      []run
	reported  []error // to the program's ErrorHandler
}

// settings are what a stack is made of.
type settings struct {
	config  asynq.Config // without a Concurrency: idle
	options []Option
	limits  []throttle.Limit
	rule    func(task *asynq.Task) (Rule, error) // nil: one permit of the first limit
	handle  func(ctx context.Context, task *asynq.Task) error
	log     *slog.Logger
	split   bool          // in virtual time: the limiter has a Redis of its own
	hooks   []redis.Hook  // in virtual time: of the process's clients
	fuse    *fuse         // in virtual time: what kills the process
	passes  time.Duration // between two reconciliations; 0 means the default
	quiet   time.Duration // between two heartbeats, without stats; 0 means the default, with stats
	redis   redis.UniversalClient
	asked   func(job waitdb.Job, needs []throttle.Need, d waitdb.Decision)
	freed   func(holder string)
	extend  func() (time.Duration, error)

	oneClock bool // see stack
}

// redises are the servers of a stack in virtual time. They are one if the limiter has none of its
// own.
type redises struct{ queueServer, limitServer *miniredis.Miniredis }

// virtual runs a worker in a bubble whose clock jumps.
func virtual(t *testing.T, s settings, f func(t *testing.T, st *stack)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var r redises
		r.queueServer, _ = redistest.Mini(t)
		if r.limitServer = r.queueServer; s.split {
			r.limitServer, _ = redistest.Mini(t)
		}
		f(t, r.start(t, s))
	})
}

// beside starts another process at the same Redis.
func (st *stack) beside(s settings) *stack { return st.redises.start(st.t, s) }

func (r redises) start(t testing.TB, s settings) *stack {
	t.Helper()
	toQueues, toLimiter := &wire{}, &wire{}
	connect := func(m *miniredis.Miniredis, w *wire) redis.UniversalClient {
		rdb := redistest.MiniClient(t, m)
		rdb.AddHook(redistest.Hook(w.around))
		for _, hook := range s.hooks {
			rdb.AddHook(hook)
		}
		if s.fuse != nil {
			rdb.AddHook(s.fuse.hook())
		}
		return rdb
	}
	if s.fuse != nil {
		s.fuse.arm()                                  // again, because channels belong to a bubble
		t.Cleanup(func() { time.Sleep(time.Second) }) // the client of a killed process tries again before it ends
	}
	rdb := connect(r.queueServer, toQueues)
	if r.limitServer != r.queueServer {
		s.redis = connect(r.limitServer, toLimiter)
	}
	s.oneClock = true
	st := start(t, rdb, s)
	if s.fuse != nil {
		t.Cleanup(func() { close(s.fuse.released) })
	}
	st.redises, st.toQueues, st.toLimiter = r, toQueues, toLimiter
	return st
}

// idle are polls that cost little in virtual time.
var idle = asynq.Config{Concurrency: 4, TaskCheckInterval: 10 * time.Second, DelayedTaskCheckInterval: 20 * time.Second}

// quick are a Server's own polls: after 10 ms, then later and later, up to a second.
var quick = asynq.Config{Concurrency: 4}

// eager are polls that find a job soon which asynq's own client has enqueued.
var eager = asynq.Config{Concurrency: 4, TaskCheckInterval: 50 * time.Millisecond}

// oneWorker is quick with one worker, so that jobs run in their order.
var oneWorker = asynq.Config{Concurrency: 1}

// retrying returns a configuration with another delay between attempts.
func retrying(config asynq.Config, delay time.Duration) asynq.Config {
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return delay }
	return config
}

func start(t testing.TB, rdb redis.UniversalClient, s settings) *stack {
	t.Helper()
	if s.config.Concurrency == 0 {
		s.config.Concurrency = idle.Concurrency
		s.config.TaskCheckInterval, s.config.DelayedTaskCheckInterval = idle.TaskCheckInterval, idle.DelayedTaskCheckInterval
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.redis == nil {
		s.redis = rdb
	}
	takeOut(t, rdb, s.redis)
	st := &stack{t: t, rdb: rdb, limits: s.redis, limiter: newSpy(s.redis, throttle.Options{Logger: s.log}), handle: s.handle, rule: s.rule, oneClock: s.oneClock}
	st.connect(rdb)
	st.limiter.asked, st.limiter.freed, st.limiter.extend = s.asked, s.freed, s.extend
	if st.rule == nil {
		st.rule = func(*asynq.Task) (Rule, error) { return Rule{Needs: []throttle.Need{{Limit: s.limits[0].Name}}}, nil }
	}
	s.config.Logger = silent{}
	s.config.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.reported = append(st.reported, err)
	})
	rules := Rules{Limits: s.limits, RuleFor: func(_ context.Context, task *asynq.Task) (Rule, error) { return st.rule(task) }}
	var err error
	st.server, err = NewServer(rdb, rules, s.config, append([]Option{withSpy(st.limiter), WithLogger(s.log)}, s.options...)...)
	st.must(err)
	mux := asynq.NewServeMux()
	mux.HandleFunc("job", st.run)
	if s.passes > 0 {
		st.server.reconcileInterval = s.passes
	}
	if s.quiet > 0 { // the simulation lasts hours, and a heartbeat each second would be slow
		st.server.maxHeartbeat = s.quiet
		st.server.scopes[0].stats.Disabled = true
	}
	st.must(st.server.Start(mux))
	t.Cleanup(st.server.Shutdown)
	return st
}

func noNeeds(context.Context, *asynq.Task) (Rule, error) { return Rule{}, nil }

// newServer returns a server whose jobs need nothing. It is shut down with the test.
func newServer(t *testing.T, rdb redis.UniversalClient, limits []throttle.Limit, config asynq.Config, opts ...Option) *Server {
	t.Helper()
	config.Logger = silent{}
	s, err := NewServer(rdb, Rules{Limits: limits, RuleFor: noNeeds}, config, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// connect makes the clients by which a test enqueues jobs and looks at them.
func (st *stack) connect(rdb redis.UniversalClient) {
	st.client, st.tasks = asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
}

func (st *stack) run(ctx context.Context, task *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	st.note(ctx, id)
	if st.handle == nil {
		return nil
	}
	return st.handle(ctx, task)
}

func (st *stack) must(err error) {
	st.t.Helper()
	if err != nil {
		st.t.Fatal(err)
	}
}

// spy sees what the limiter answers to each job.
type spy struct {
	*waitdb.DB
	mu      sync.Mutex
	denials map[string]int
	allowed []waitdb.Decision
	// These may be nil. extend answers in place of the limiter.
	extend  func() (time.Duration, error)
	asked   func(job waitdb.Job, needs []throttle.Need, d waitdb.Decision)
	freed   func(holder string)
	limited func(job waitdb.Job, r waitdb.RateLimit, d waitdb.Decision)
}

func newSpy(rdb redis.UniversalClient, o throttle.Options) *spy {
	return &spy{DB: waitdb.New(throttle.New(rdb, o)), denials: map[string]int{}}
}

// unforgiven counts each crash of a worker as a failure of its jobs.
var unforgiven Option = func(o *options) { o.forgivenCrashes = 0 }

// withSpy puts a spy before the server's limiter.
func withSpy(s *spy) Option { return func(o *options) { o.limiter, o.permits = s.Limiter, s } }

func (s *spy) RateLimited(ctx context.Context, job waitdb.Job, r waitdb.RateLimit, needs ...throttle.Need) (waitdb.Decision, error) {
	d, err := s.DB.RateLimited(ctx, job, r, needs...)
	if err == nil && s.limited != nil {
		s.limited(job, r, d)
	}
	return d, err
}

func (s *spy) Free(ctx context.Context, holder string, needs ...throttle.Need) error {
	if s.freed != nil {
		s.freed(holder)
	}
	return s.DB.Free(ctx, holder, needs...)
}

func (s *spy) Extend(ctx context.Context, holder string, needs ...throttle.Need) (time.Duration, error) {
	if s.extend != nil {
		return s.extend()
	}
	return s.Limiter.Extend(ctx, holder, needs...)
}

func (s *spy) AcquireAll(ctx context.Context, asks ...waitdb.AcquireRequest) []waitdb.AcquireResult {
	results := s.DB.AcquireAll(ctx, asks...)
	for i, r := range results {
		if r.Err == nil && s.asked != nil {
			s.asked(asks[i].Job, asks[i].Needs, r.Decision)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range results {
		switch r.Outcome {
		case throttle.Denied:
			s.denials[asks[i].ID]++
		case throttle.Allowed:
			s.allowed = append(s.allowed, r.Decision)
		}
	}
	return results
}

// Limits, tasks, rules and handlers.

var oneSlot = throttle.Limit{Name: "slot", Kind: throttle.Concurrency, Capacity: 1, Lease: 30 * time.Second}

func funnel(name string, perSecond, capacity int) throttle.Limit {
	return throttle.Limit{Name: name, Kind: throttle.Funnel, Rate: throttle.PerSecond(perSecond), Capacity: capacity}
}

func perMinute(n, capacity int) throttle.Limit {
	return throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerMinute(n), Capacity: capacity}
}

// each is a limit "api" of one permit in some time.
func each(d time.Duration) throttle.Limit {
	return throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(d)}
}

var onePerSecond = []throttle.Limit{funnel("a", 1, 1)}

// needing makes a task whose payload says what it needs: limit, limit/key or limit:cost, separated
// by spaces. ruleOfPayload reads it.
func needing(needs string, opts ...asynq.Option) *asynq.Task {
	return asynq.NewTask("job", []byte(needs), append([]asynq.Option{asynq.MaxRetry(0)}, opts...)...)
}

func ruleOfPayload(task *asynq.Task) (Rule, error) {
	var r Rule
	for need := range strings.FieldsSeq(string(task.Payload())) {
		meter, cost, _ := strings.Cut(need, ":")
		limit, key, _ := strings.Cut(meter, "/")
		n, _ := strconv.Atoi(cost)
		r.Needs = append(r.Needs, throttle.Need{Limit: limit, Key: key, Cost: n})
	}
	return r, nil
}

// always returns the same rule for all tasks.
func always(r Rule) func(*asynq.Task) (Rule, error) {
	return func(*asynq.Task) (Rule, error) { return r, nil }
}

// needs is a Rule with one permit of a limit.
func needs(limit string) Rule { return Rule{Needs: []throttle.Need{{Limit: limit}}} }

// takes returns a handler that takes some time.
func takes(d time.Duration) func(context.Context, *asynq.Task) error {
	return func(context.Context, *asynq.Task) error { time.Sleep(d); return nil }
}

// returns returns a handler that returns an error.
func returns(err error) func(context.Context, *asynq.Task) error {
	return func(context.Context, *asynq.Task) error { return err }
}

// constantDelay is a policy with the same delay before each retry.
func constantDelay(d time.Duration) *RetryPolicy {
	return &RetryPolicy{Backoff: Backoff{Growth: GrowthConstant, Base: d, Jitter: JitterNone}}
}

// numbered is the i-th job ID of a kind, in an order that is that of the numbers.
func numbered(kind string, i int) asynq.Option { return asynq.TaskID(fmt.Sprintf("%s-%04d", kind, i)) }

func (st *stack) enqueue(task *asynq.Task, opts ...asynq.Option) string {
	st.t.Helper()
	info, err := st.client.Enqueue(task, opts...)
	st.must(err)
	return info.ID
}

// enqueueN enqueues jobs that need the same, and returns their IDs: job-0000, job-0001 and so on.
func (st *stack) enqueueN(n int, needs string, opts ...asynq.Option) (ids []string) {
	st.t.Helper()
	for range n {
		ids = append(ids, st.enqueue(needing(needs, numbered("job", st.enqueued)), opts...))
		st.enqueued++
	}
	return ids
}

// add enqueues a job with asynq's own client.
func add(t *testing.T, rdb redis.UniversalClient, id string, opts ...asynq.Option) string {
	t.Helper()
	_, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("job", nil), append(opts, asynq.TaskID(id))...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// addMany enqueues jobs with asynq's own client, and returns their IDs in order.
func addMany(t *testing.T, rdb redis.UniversalClient, n int, opts ...asynq.Option) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, add(t, rdb, fmt.Sprintf("job-%03d", i), opts...))
	}
	return ids
}

// takePermit takes one permit of a limit, past the queues.
func (st *stack) takePermit(limit string) {
	st.t.Helper()
	if d, err := st.limiter.Allow(st.t.Context(), limit, ""); !d.OK() {
		st.t.Fatal(d, err)
	}
}

// What the jobs did.

// run is what a stack notes when a handler begins: then the job's call leaves, which is what limits
// are for.
type run struct {
	id       string
	at       time.Time
	needs    []throttle.Need
	decision throttle.Decision
}

// note notes that a handler begins. In virtual time, if Redis's clock is this one, no handler
// begins later than latestStart after its permits existed. On a real machine another process may run
// between the server's own look at their age and this one.
func (st *stack) note(ctx context.Context, id string) {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	d := a.decision.Decision
	r := run{id, time.Now(), a.rule.Needs, d}
	if late := r.at.Sub(d.At.Add(d.BeginIn)); st.oneClock && d.OK() && len(d.Taken) > 0 && late > latestStart(a.decision.Windowed, a.scope.Server) {
		st.t.Errorf("the handler of %s begins %s after its permits existed", id, late)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.runs = append(st.runs, r)
}

// latestStart is how long after its permits existed a job may begin on one of these servers, with
// or without permits of a window. A window allows more on a server that was too slow.
func latestStart(windowed bool, servers ...*Server) time.Duration {
	grew := func(s *Server) bool {
		s.permitAge.mu.Lock()
		defer s.permitAge.mu.Unlock()
		return s.permitAge.hasGrown
	}
	if windowed && !slices.ContainsFunc(servers, grew) {
		return waitdb.MaxWindowAge
	}
	return maxPermitAge
}

// isWindow tells whether a limit counts the permits of a window.
func isWindow(l throttle.Limit) bool {
	return slices.Contains([]throttle.Kind{throttle.FixedWindow, throttle.SlidingLog, throttle.SlidingWindow}, l.Kind)
}

// ran returns the jobs that ran, in order.
func (st *stack) ran() []run {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.runs)
}

// order returns the IDs of the jobs that ran, in order.
func (st *stack) order() (ids []string) {
	for _, r := range st.ran() {
		ids = append(ids, r.id)
	}
	return ids
}

func (st *stack) wantOrder(want []string) {
	st.t.Helper()
	if got := st.order(); !slices.Equal(got, want) {
		st.t.Errorf("ran\n%v, want\n%v", got, want)
	}
}

func (st *stack) wantRuns(n int) {
	st.t.Helper()
	if ran := st.order(); len(ran) != n {
		st.t.Errorf("%d runs, want %d: %v", len(ran), n, ran)
	}
}

// wantOnce fails unless each of n jobs ran exactly once and was denied at most once.
func (st *stack) wantOnce(n int) {
	st.t.Helper()
	st.wantOnceEach(n)
	st.limiter.mu.Lock()
	defer st.limiter.mu.Unlock()
	for id, times := range st.limiter.denials {
		if times > 1 {
			st.t.Errorf("job %s was denied %d times", id, times)
		}
	}
}

// wantOnceEach fails unless each of n jobs ran exactly once.
func (st *stack) wantOnceEach(n int) {
	st.t.Helper()
	seen := map[string]int{}
	for _, id := range st.order() {
		if seen[id]++; seen[id] > 1 {
			st.t.Errorf("job %s ran %d times", id, seen[id])
		}
	}
	if len(seen) != n {
		st.t.Errorf("%d jobs ran, want %d", len(seen), n)
	}
}

// wantDenials fails if the jobs of a process were denied more often.
func (st *stack) wantDenials(jobs int, average float64, most int) {
	st.t.Helper()
	st.limiter.mu.Lock()
	defer st.limiter.mu.Unlock()
	all, worst := 0, 0
	for _, n := range st.limiter.denials {
		all, worst = all+n, max(worst, n)
	}
	if got := float64(all) / float64(jobs); got > average || worst > most {
		st.t.Errorf("%.3f denials a job, most %d; want at most %.2f, most %d", got, worst, average, most)
	}
}

// wantLastBy fails unless n jobs ran, the last at most so long after began.
func (st *stack) wantLastBy(began time.Time, n int, within time.Duration) {
	st.t.Helper()
	st.wantRuns(n)
	last := time.Duration(0)
	for _, r := range st.ran() {
		last = max(last, r.at.Sub(began))
	}
	if last > within {
		st.t.Errorf("the last ran after %s, want at most %s", last, within)
	}
}

// wantNotReported fails if the program's ErrorHandler was called.
func (st *stack) wantNotReported() {
	st.t.Helper()
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.reported) != 0 {
		st.t.Errorf("reported: %v", st.reported)
	}
}

// wantNotOver fails if workers of one scope took more permits of a limit than it allows, or started
// more jobs than such permits explain. If the meters were lost at a moment, what was taken before
// is judged on its own.
func wantNotOver(t testing.TB, limit throttle.Limit, lost time.Time, workers ...*stack) {
	t.Helper()
	type part struct {
		key   string
		later bool
	}
	permits, starts := map[part][]throttletest.Admission{}, map[part][]throttletest.Admission{}
	note := func(all map[part][]throttletest.Admission, needs []throttle.Need, d throttle.Decision, at time.Time) {
		for _, n := range needs {
			if n.Limit == limit.Name {
				p := part{n.Key, !d.At.Before(lost)}
				all[p] = append(all[p], throttletest.Admission{At: at.UnixMicro(), Cost: max(1, n.Cost)})
			}
		}
	}
	for _, w := range workers {
		w.limiter.mu.Lock()
		for _, d := range w.limiter.allowed {
			note(permits, d.Taken, d.Decision, d.At.Add(d.BeginIn))
		}
		w.limiter.mu.Unlock()
		if !w.oneClock { // as in (*stack).note
			continue
		}
		for _, r := range w.ran() {
			note(starts, r.needs, r.decision, r.at)
		}
	}
	for p, history := range permits {
		if err := throttletest.Check(limit, history); err != nil {
			t.Errorf("permits of %s|%s: %v", limit.Name, p.key, err)
		}
	}
	var servers []*Server
	for _, w := range workers {
		servers = append(servers, w.server)
	}
	for p, history := range starts {
		if err := throttletest.CheckStarts(limit, history, latestStart(isWindow(limit), servers...)); err != nil {
			t.Errorf("starts under %s|%s: %v", limit.Name, p.key, err)
		}
	}
}

// What asynq and the limiter keep.

// gone is the state of a job that asynq does not have.
const gone asynq.TaskState = 0

// info returns what asynq knows of a job in the default queue, or nil.
func (st *stack) info(id string) *asynq.TaskInfo {
	st.t.Helper()
	info, err := st.tasks.GetTaskInfo("default", id)
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return nil
	}
	st.must(err)
	return info
}

// wantJob fails unless a job is in a state, with an error that contains a text, and returns it.
func (st *stack) wantJob(id string, state asynq.TaskState, text string) *asynq.TaskInfo {
	st.t.Helper()
	info := st.info(id)
	switch {
	case info == nil && state != gone:
		st.t.Errorf("job %s is gone, want it %s", id, state)
		return &asynq.TaskInfo{}
	case info != nil && (info.State != state || !strings.Contains(info.LastErr, text)):
		st.t.Errorf("job %s is %s, %q; want it %s (0 is gone) with %q: %+v", id, info.State, info.LastErr, state, text, info)
	}
	return info
}

// wantNothingLeft fails if asynq has anything of the default queue's jobs but completed ones, or
// has counted a failure.
func (st *stack) wantNothingLeft() {
	st.t.Helper()
	q, err := st.tasks.GetQueueInfo("default")
	if err != nil || q.Size > q.Completed || q.FailedTotal > 0 {
		st.t.Errorf("queue: %+v, %v; want nothing in it and no failure", q, err)
	}
}

// wantClean fails if the limiter keeps anything of jobs that have all run.
func (st *stack) wantClean() {
	st.t.Helper()
	for _, key := range st.left() {
		st.t.Errorf("%q is left behind: %v", key, contentsOf(st.limits, key))
	}
}

const scopePrefix = "hg:{default}:"

// left lists what the limiter keeps of jobs that wait.
func (st *stack) left() (keys []string) {
	for _, key := range st.limits.Keys(st.t.Context(), scopePrefix+"*").Val() {
		name, _, _ := strings.Cut(strings.TrimPrefix(key, scopePrefix), ":")
		if slices.Contains([]string{"jobs", "lane", "granted", "lanes", "tickets", "full", "meters", "demand", "deadlines"}, name) {
			keys = append(keys, key)
		}
	}
	return keys
}

// contentsOf returns what a sorted set or a hash holds.
func contentsOf(rdb redis.UniversalClient, key string) any {
	if set, err := rdb.ZRangeWithScores(context.Background(), key, 0, -1).Result(); err == nil {
		return set
	}
	return rdb.HGetAll(context.Background(), key).Val()
}

func redisZ(at time.Time, member string) redis.Z {
	return redis.Z{Score: float64(at.Unix()), Member: member}
}

// Logs.

type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

// journal keeps what was logged.
type journal struct{ proctest.Log }

// times is how often a text was logged.
func (j *journal) times(text string) int { return strings.Count(j.String(), text) }

// logger returns a logger that writes levels, messages and attributes, without times.
func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// slow skips a test in short mode, and else runs it beside others.
func slow(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
}
