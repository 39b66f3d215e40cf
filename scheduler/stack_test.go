package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// stack is one worker process with all its parts, in virtual time or on a real
// server, and a record of what its jobs did.
type stack struct {
	t        testing.TB
	rdb      redis.UniversalClient // the queues'
	limits   redis.UniversalClient // the limiter's
	limiter  *spy
	client   *asynq.Client
	tasks    *asynq.Inspector
	server   *Server
	handle   func(ctx context.Context, task *asynq.Task) error
	rule     func(task *asynq.Task) (Rule, error)
	mu       sync.Mutex
	runs     []run
	oneClock bool // the limiter's is the process's, and no other process runs meanwhile
	reported []error
}

// spy counts what the limiter answered to each job.
type spy struct {
	*waitdb.DB
	mu      sync.Mutex
	denials map[string]int
	allowed []waitdb.Decision
	// extend answers Extend where it is not nil.
	extend func() (held bool, err error)
	// asked and freed hear of answers and of freed leases, where not nil.
	asked   func(job waitdb.Job, needs []throttle.Need, d waitdb.Decision)
	freed   func(holder string)
	refused func(job waitdb.Job, r waitdb.RateLimit, d waitdb.Decision)
}

// withSpy has a server's limiter looked at.
func withSpy(s *spy) Option { return func(o *options) { o.limiter, o.permits = s.Limiter, s } }

func (s *spy) Refused(ctx context.Context, job waitdb.Job, r waitdb.RateLimit, needs ...throttle.Need) (waitdb.Decision, error) {
	d, err := s.DB.RateLimited(ctx, job, r, needs...)
	if err == nil && s.refused != nil {
		s.refused(job, r, d)
	}
	return d, err
}

func (s *spy) Free(ctx context.Context, holder string, needs ...throttle.Need) error {
	if s.freed != nil {
		s.freed(holder)
	}
	return s.DB.Free(ctx, holder, needs...)
}

func (s *spy) Extend(ctx context.Context, holder string, needs ...throttle.Need) (bool, error) {
	if s.extend != nil {
		return s.extend()
	}
	return s.Limiter.Extend(ctx, holder, needs...)
}

func (s *spy) AcquireAll(ctx context.Context, asks ...waitdb.AcquireRequest) []waitdb.AcquireResult {
	answers := s.DB.AcquireAll(ctx, asks...)
	for i, a := range answers {
		if a.Err == nil && s.asked != nil {
			s.asked(asks[i].Job, asks[i].Needs, a.Decision)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range answers {
		switch a.Outcome {
		case throttle.Denied:
			s.denials[asks[i].ID]++
		case throttle.Allowed:
			s.allowed = append(s.allowed, a.Decision)
		}
	}
	return answers
}

type settings struct {
	passes  time.Duration // 0: as in life
	quiet   time.Duration // the same
	config  asynq.Config
	options []Option
	limits  []throttle.Limit
	rule    func(task *asynq.Task) (Rule, error) // nil: one permit of the first limit
	extend  func() (bool, error)                 // the limiter's, if not nil
	redis   redis.UniversalClient                // the limiter's, if not the queues'
	log     *slog.Logger                         // nil: nobody hears it
	asked   func(job waitdb.Job, needs []throttle.Need, d waitdb.Decision)
	freed   func(holder string)
	handle  func(ctx context.Context, task *asynq.Task) error

	oneClock bool // see stack
}

// idle are polls that cost little in virtual time.
var idle = asynq.Config{Concurrency: 4, TaskCheckInterval: 10 * time.Second, DelayedTaskCheckInterval: 20 * time.Second}

func start(t testing.TB, rdb redis.UniversalClient, s settings) *stack {
	t.Helper()
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.redis == nil {
		s.redis = rdb
	}
	takeOut(rdb, s.redis)
	st := &stack{
		t: t, rdb: rdb, limits: s.redis, client: asynq.NewClientFromRedisClient(rdb), tasks: asynq.NewInspectorFromRedisClient(rdb),
		limiter: &spy{DB: waitdb.New(throttle.New(s.redis, throttle.Options{Logger: s.log})), denials: map[string]int{}, extend: s.extend},
		handle:  s.handle, rule: s.rule, oneClock: s.oneClock,
	}
	st.limiter.asked, st.limiter.freed = s.asked, s.freed
	if st.rule == nil {
		st.rule = func(*asynq.Task) (Rule, error) {
			return Rule{Needs: []throttle.Need{{Limit: s.limits[0].Name}}}, nil
		}
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
	if err != nil {
		t.Fatal(err)
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("job", st.run)
	if s.passes > 0 {
		st.server.passes = s.passes
	}
	if s.quiet > 0 { // it is of hours, each second of which would be looked at
		st.server.quiet = s.quiet
		st.server.scopes[0].stats.Disabled = true
	}
	if err := st.server.Start(mux); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.server.Shutdown)
	return st
}

func (st *stack) run(ctx context.Context, task *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	st.note(ctx, id)
	if st.handle == nil {
		return nil
	}
	return st.handle(ctx, task)
}

func (st *stack) enqueue(task *asynq.Task, opts ...asynq.Option) string {
	st.t.Helper()
	info, err := st.client.Enqueue(task, opts...)
	if err != nil {
		st.t.Fatal(err)
	}
	return info.ID
}

// ran returns the jobs that ran, in order.
func (st *stack) ran() []run {
	st.mu.Lock()
	defer st.mu.Unlock()
	return append([]run(nil), st.runs...)
}

// info returns what asynq knows of a job in the default queue, or nil.
func (st *stack) info(id string) *asynq.TaskInfo {
	st.t.Helper()
	info, err := st.tasks.GetTaskInfo("default", id)
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) {
		return nil
	}
	if err != nil {
		st.t.Fatal(err)
	}
	return info
}

// wantOnce fails unless each of n jobs ran exactly once and was denied at most
// once.
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
	for _, r := range st.ran() {
		seen[r.id]++
	}
	if len(seen) != n {
		st.t.Errorf("%d jobs ran, want %d", len(seen), n)
	}
	for id, times := range seen {
		if times != 1 {
			st.t.Errorf("job %s ran %d times", id, times)
		}
	}
}

// wantClean fails if the limiter keeps anything of jobs that have all run.
func (st *stack) wantClean() {
	st.t.Helper()
	for _, key := range st.left() {
		st.t.Errorf("%q is left behind", key)
	}
}

// left lists what the limiter keeps of jobs that wait.
func (st *stack) left() (keys []string) {
	for _, key := range st.limits.Keys(st.t.Context(), "hg:{default}:*").Val() {
		name, _, _ := strings.Cut(strings.TrimPrefix(key, "hg:{default}:"), ":")
		if slices.Contains([]string{"jobs", "lane", "granted", "lanes", "tickets", "full", "meters", "demand", "deadlines"}, name) {
			keys = append(keys, key)
		}
	}
	return keys
}

type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

func (st *stack) must(err error) {
	st.t.Helper()
	if err != nil {
		st.t.Fatal(err)
	}
}

func redisZ(at time.Time, member string) redis.Z {
	return redis.Z{Score: float64(at.Unix()), Member: member}
}
