package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// limits are the limits that the server defines in Redis when it starts, or before its first
// request for permits if Redis was unavailable.
type limits struct {
	list    []throttle.Limit
	byName  map[string]throttle.Limit
	defined bool // whether this server has defined them in Redis
}

func newLimits(list []throttle.Limit, defined bool) *limits {
	l := &limits{slices.Clone(list), map[string]throttle.Limit{}, defined}
	for _, limit := range list {
		limit.Paused = false
		l.byName[limit.Name] = limit
	}
	return l
}

// Define replaces the Limits of the server's rules, for example after a change of a config file. It
// takes one round trip for each limit. A limit that is not among the new ones stays defined in
// Redis until it is deleted there. After an error the server keeps the old limits. If the error
// wraps throttle.ErrUnavailable, Redis may have some of the new limits. Define may be called at any
// time, from any goroutine.
func (s *Server) Define(ctx context.Context, limits ...throttle.Limit) error {
	parts, err := s.limitsByScope(limits)
	if err != nil {
		return err
	}
	for i, c := range s.scopes {
		if err := c.limiter.Define(ctx, parts[i]...); err != nil {
			return err
		}
	}
	for i, c := range s.scopes {
		c.limits.Store(newLimits(parts[i], true))
	}
	return nil
}

// limitsByScope returns the limits of each scope, in the order of s.scopes. A shard gets its part
// of a divided limit.
func (s *Server) limitsByScope(limits []throttle.Limit) ([][]throttle.Limit, error) {
	parts := make([][]throttle.Limit, len(s.scopes))
	for i, c := range s.scopes {
		var err error
		if parts[i], err = s.shards.LimitsIn(c.shard, limits); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// define defines the limits in Redis if this server has not done so yet. It is called before every
// request.
func (s *scope) define(ctx context.Context) error {
	l := s.limits.Load()
	if l.defined || len(l.list) == 0 {
		return nil
	}
	if err := s.checkShards(ctx); err != nil {
		return fmt.Errorf("%w: %w", throttle.ErrUnavailable, err) // the jobs wait
	}
	call := s.limiterHealth.Begin()
	err := s.limiter.Define(ctx, l.list...)
	noteLimiter(ctx, call, err)
	if err == nil {
		s.limits.CompareAndSwap(l, newLimits(l.list, true)) // unless they were replaced meanwhile
	}
	return err
}

// storedLimits reads the fields of limits in one round trip. Both results have one element for each
// name. A limit is lost if its definition is incomplete, or missing although the limit was not
// deleted.
func storedLimits(ctx context.Context, limiter *waitdb.DB, names []string) (fields []map[string]string, lost []bool, err error) {
	rdb, prefix := limiter.Scope()
	var deleted, summaries *redis.SliceCmd
	var listed *redis.StringSliceCmd
	hashes := make([]*redis.MapStringStringCmd, len(names))
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			hashes[i] = p.HGetAll(ctx, prefix+"limit:"+name)
		}
		deleted = p.HMGet(ctx, prefix+"deleted", names...)
		summaries = p.HMGet(ctx, prefix+"summaries", names...)
		listed = p.SMembers(ctx, prefix+"limits")
		return nil
	})
	if err != nil {
		script.RemoveWrongTypes(ctx, rdb, prefix, err) // for the next call
		return nil, nil, err
	}
	for i, name := range names {
		hash := hashes[i].Val()
		_, complete := limiter.Internals().Parse(name, hash)
		isDeleted := len(hash) == 0 && deleted.Val()[i] != nil
		fields = append(fields, hash)
		lost = append(lost, !isDeleted && (!complete || summaries.Val()[i] == nil || !slices.Contains(listed.Val(), name)))
	}
	return fields, lost, nil
}

// compareLimits compares the server's limits with those in Redis. It defines a limit again if a
// part of its definition is lost. It logs limits that another process has defined differently,
// because the last definition is in force. The first call also logs limits that are paused or were
// set at run time, because a restart neither resumes nor resets them.
func (s *scope) compareLimits(ctx context.Context) {
	l := s.limits.Load()
	if !l.defined || len(l.list) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(l.byName))
	stored, lost, err := storedLimits(ctx, s.limiter, names)
	if err != nil {
		return // requests for permits report an outage
	}
	before := s.logged
	s.logged = map[string]string{}
	for i, name := range names {
		text, now, file := l.byName[name].String(), stored[i]["text"], stored[i]["file"]
		if before == nil && stored[i]["paused"] != "" && !lost[i] {
			s.log.Warn("a limit is paused", "limit", name, "to resume", "headgate-worker limits resume "+name)
		}
		switch {
		case lost[i]:
			s.logged[name] = "lost"
			if s.defineLost(ctx, l.byName[name]) && before[name] != "lost" {
				s.log.Warn("part of a limit was lost in Redis: it is defined again", "limit", name)
			}
		case file != "" && file != text:
			if s.logged[name] = file; before[name] != file {
				s.log.Warn("another process has defined a limit differently: that definition is in force", "limit", name, "now", file, "here", text)
			}
		case before == nil && now != "" && now != text:
			s.log.Warn("a limit was set at run time: that overrides its definition until the definition changes", "limit", name, "now", now, "defined", text)
		}
	}
}

// defineLost defines a damaged limit again. It removes the field "text" first, because Define
// changes nothing if that field is the same. If a step fails, the next compareLimits tries again.
func (s *scope) defineLost(ctx context.Context, l throttle.Limit) (ok bool) {
	rdb, prefix := s.limiter.Scope()
	return rdb.HDel(ctx, prefix+"limit:"+l.Name, "text").Err() == nil && s.limiter.Define(ctx, l) == nil
}
