package scheduler

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// scope is what a server has of one scope of the limiter: the limits there, and the queues whose
// jobs wait there. It uses everything else of its Server.
type scope struct {
	*Server
	queues  []string // by name
	limiter *waitdb.DB
	permits permits // the limiter
	limits  limits
	logged  logged
	weights map[string]fairqueue.Weight // how the queues take turns
	claimed atomic.Value                // a string: which data of the queues' Redis the scope was claimed for
	changed chan struct{}               // the rules have

	requests requestQueue
	slots    slotTeller
	stats    *stats.Recorder
	written  func() // ends the stats

	queueHealth, limiterHealth *redishealth.Monitor // the same if both are in one Redis
}

// addScope adds the scope of a limiter, in which the jobs of some queues wait.
func (s *Server) addScope(limiter *throttle.Limiter, queues []string, cfg asynq.Config) *scope {
	c := &scope{
		Server: s, queues: queues, limiter: waitdb.New(limiter), weights: map[string]fairqueue.Weight{}, changed: make(chan struct{}, 1),
		logged: logged{files: map[string]string{}, lost: map[string]bool{}},
	}
	c.permits = c.limiter
	c.requests.acquire = c.acquire
	c.setHealth()
	rdb, prefix := c.limiter.Scope()
	c.stats = stats.New(rdb, prefix)
	c.stats.Queues, c.stats.ServedQueues, c.stats.RuleFor = s.db.Redis, queues, s.wantsOf
	name := uuid.NewString()
	c.slots = slotTeller{queues: queues, free: s.idleSlots, tell: func(free int, every time.Duration) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.limiter.ReportSlots(ctx, name, free, every, queues) // the leader asks again in a second
	}}
	s.scopes = append(s.scopes, c)
	for _, queue := range queues {
		s.byQueue[queue] = c
		// Queues take turns at limits as they are served.
		c.weights[queue] = fairqueue.Weight{Turns: max(1, cfg.Queues[queue]), Strict: cfg.StrictPriority}
	}
	return c
}

// start claims the scope and defines its limits. If Redis is unavailable, both are left for later.
func (s *scope) start(ctx context.Context) error {
	if err := s.claim(ctx); err != nil {
		return err
	}
	if err := s.define(ctx); err != nil && !errors.Is(err, throttle.ErrUnavailable) {
		return err
	}
	s.compareLimits(ctx)
	return nil
}

// scopeOf returns the scope in which the jobs of a queue wait.
func (s *Server) scopeOf(queue string) *scope {
	if c := s.byQueue[queue]; c != nil {
		return c
	}
	return s.scopes[0]
}

// setHealth makes the scope's two monitors, which are one if queues and limiter are reached by one
// client.
func (s *scope) setHealth() {
	rdb, prefix := s.limiter.Scope()
	var places []string
	for _, queue := range s.queues {
		places = append(places, asynqdb.Key(queue, ""))
	}
	if reflect.TypeOf(rdb).Comparable() && rdb == s.db.Redis {
		s.queueHealth = redishealth.New(s.log, "Redis", rdb, append(places, prefix)...)
		s.limiterHealth = s.queueHealth
		return
	}
	s.queueHealth = redishealth.New(s.log, "the queues' Redis", s.db.Redis, places...)
	s.limiterHealth = redishealth.New(s.log, "the limiter's Redis", rdb, prefix)
}

// ready returns why jobs of the scope cannot run now: see Server.Ready.
func (s *scope) ready(ctx context.Context) error {
	if err := s.queueHealth.Check(ctx); err != nil || s.limiterHealth == s.queueHealth {
		return err
	}
	return s.limiterHealth.Check(ctx)
}

// noteLimiter tells the limiter's monitor of a call. An error other than ErrUnavailable is an
// answer.
func (s *scope) noteLimiter(ctx context.Context, began time.Time, err error) {
	if !errors.Is(err, throttle.ErrUnavailable) {
		err = nil
	}
	s.limiterHealth.Note(ctx, began, err)
}

// dispatch gives turns in the scope until the context ends.
func (s *scope) dispatch(ctx context.Context) {
	dispatcher.Run(ctx, dispatcher.Config{
		Waits: s.limiter, DB: s.db, Log: s.log, LimiterHealth: s.limiterHealth, QueuesHealth: s.queueHealth,
		ReconcileInterval: s.passes, MaxHeartbeat: s.quiet, Stats: s.stats, SlotsRequested: s.slots.wanted,
	})
}
