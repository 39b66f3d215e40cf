package scheduler

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// scope is a server's part in one scope of the limiter: the scope's limits, and the queues whose
// jobs wait in it.
type scope struct {
	*Server
	shard        shard.Shard // zero for the scope of the queues without shards
	queues       []string    // sorted by name
	limiter      *waitdb.DB
	permits      permits // the limiter, or a test's wrapper
	limits       atomic.Pointer[limits]
	logged       map[string]string           // by limit: what compareLimits has logged; nil before its first call
	weights      map[string]fairqueue.Weight // by queue: its share of the turns
	claimedData  atomic.Value                // a string: the ID of the data in the queues' Redis at the last claim
	rulesChanged chan struct{}

	requests  requestQueue
	deniedAt  atomic.Int64 // time of the last denial, in Unix nanoseconds
	slots     slotTeller
	stats     *stats.Recorder
	stopStats func() // writes the stats and stops the recorder

	queueHealth, limiterHealth *redishealth.Monitor // one Monitor if queues and limiter use the same client
}

// addScopes adds the scope of the server's limiter for all queues without shards, and one scope in
// the same Redis for each shard of the other queues. A shard's scope has the shard's name.
func (s *Server) addScopes(o options, cfg asynq.Config) error {
	if o.limiter == nil {
		o.limiter = throttle.New(s.db.Redis, throttle.Options{Logger: s.log})
	}
	unsharded := slices.DeleteFunc(slices.Clone(s.served), func(queue string) bool { return s.shards.Count(queue) > 0 })
	s.addScope(o.limiter, unsharded, shard.Shard{}, cfg)
	if o.permits != nil {
		s.scopes[0].permits = o.permits
	}
	rdb, _, app := o.limiter.Internals().Scope()
	for _, queue := range s.served {
		for _, part := range shard.All(queue, s.shards.Count(queue)) {
			limiter := throttle.New(rdb, throttle.Options{Scope: part.Name(), App: app, Logger: s.log})
			s.addScope(limiter, []string{part.Name()}, part, cfg)
		}
	}
	parts, err := s.limitsByScope(s.rules.Limits)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	for i, c := range s.scopes {
		c.limits.Store(newLimits(parts[i], false))
	}
	return nil
}

// addScope adds the scope of a limiter, for the jobs of the given asynq queues.
func (s *Server) addScope(limiter *throttle.Limiter, queues []string, part shard.Shard, cfg asynq.Config) {
	c := &scope{
		Server: s, shard: part, queues: queues, limiter: waitdb.New(limiter), weights: map[string]fairqueue.Weight{}, rulesChanged: make(chan struct{}, 1),
	}
	c.permits, c.slots.due = c.limiter, make(chan struct{}, 1)
	c.setHealth()
	rdb, prefix := c.limiter.Scope()
	c.stats = stats.New(rdb, prefix)
	c.stats.Queues, c.stats.ServedQueues, c.stats.RuleFor = s.db.Redis, queues, s.requirementsOf
	if len(s.scopes) > 0 {
		c.stats.ShareProcess(s.scopes[0].stats)
	}
	s.scopes = append(s.scopes, c)
	for _, queue := range queues {
		s.byQueue[queue] = c
		// asynq's queue priorities also apply to waiting jobs.
		c.weights[queue] = fairqueue.Weight{Turns: max(1, cfg.Queues[s.shards.QueueOf(queue)]), Strict: cfg.StrictPriority}
	}
}

// scopeOf returns the scope in which the jobs of a queue wait.
func (s *Server) scopeOf(queue string) *scope {
	if c := s.byQueue[queue]; c != nil {
		return c
	}
	return s.scopes[0]
}

// setHealth creates the monitors of the queues' Redis and the limiter's Redis. It is one monitor if
// both use the same client.
func (s *scope) setHealth() {
	rdb, prefix := s.limiter.Scope()
	var prefixes []string
	for _, queue := range s.queues {
		prefixes = append(prefixes, asynqdb.Key(queue, ""))
	}
	if reflect.TypeOf(rdb).Comparable() && rdb == s.db.Redis {
		s.queueHealth = redishealth.New(s.log, "Redis", rdb, append(prefixes, prefix)...)
		s.limiterHealth = s.queueHealth
		return
	}
	s.queueHealth = redishealth.New(s.log, "the queues' Redis", s.db.Redis, prefixes...)
	s.limiterHealth = redishealth.New(s.log, "the limiter's Redis", rdb, prefix)
}

// noteLimiter reports the error of a call of the limiter's Redis to its monitor. An error other than
// ErrUnavailable counts as a reply of Redis.
func noteLimiter(ctx context.Context, call redishealth.Call, err error) {
	if !errors.Is(err, throttle.ErrUnavailable) {
		err = nil
	}
	call.Note(ctx, err)
}

// blockOtherShards blocks the keys of divided limits for d in all other shards of the queue,
// because the upstream blocks calls of all shards. It does nothing if d is not positive, and
// ignores errors.
func (s *scope) blockOtherShards(d time.Duration, needs []throttle.Need) {
	ctx, cancel := context.WithTimeout(context.Background(), reportTimeout)
	defer cancel()
	parts := slices.DeleteFunc(slices.Clone(needs), func(n throttle.Need) bool { _, divided := s.shards.Home(n.Limit); return !divided })
	for _, c := range s.scopes {
		if d > 0 && len(parts) > 0 && c != s && c.shard.Queue == s.shard.Queue {
			_ = c.limiter.Internals().BlockFor(ctx, d, parts...)
		}
	}
}
