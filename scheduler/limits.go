package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// limits are the limits that the server keeps defined. The limiter is told at the start, or, if it
// cannot be reached then, before the first job that asks it. Later the limiter defines them again
// by itself if its Redis has lost them.
type limits struct {
	mu        sync.Mutex
	list      []throttle.Limit
	version   int  // of the list, which may be replaced while the limiter is told
	isDefined bool // whether the limiter has been told
}

// set replaces the list. What is known need not be told to the limiter.
func (l *limits) replace(list []throttle.Limit, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list, l.isDefined = slices.Clone(list), known
	l.version++
}

// unknown returns what the limiter must be told, if anything.
func (l *limits) undefined() (list []throttle.Limit, version int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isDefined {
		return nil, 0
	}
	return l.list, l.version
}

// told notes that the limiter knows a version of the list.
func (l *limits) markDefined(version int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isDefined = l.isDefined || l.version == version
}

// defined returns the limits that the limiter has been told, by name; none while it has not been.
func (l *limits) defined() map[string]throttle.Limit {
	l.mu.Lock()
	defer l.mu.Unlock()
	limits := map[string]throttle.Limit{}
	for i := 0; l.isDefined && i < len(l.list); i++ {
		limit := l.list[i]
		limit.Paused = false
		limits[limit.Name] = limit
	}
	return limits
}

// Define replaces the rules' Limits of a server, for example when its config file has changed. It
// takes a round trip for each limit. A limit that is no longer among them stays defined until
// somebody deletes it. After an error the server keeps the old limits; if the error wraps
// throttle.ErrUnavailable, the limiter may have taken some of the new ones. It may be called at any
// time, from any goroutine.
func (s *Server) Define(ctx context.Context, limits ...throttle.Limit) error {
	parts, err := s.parts(limits)
	if err != nil {
		return err
	}
	for i, c := range s.scopes {
		if err := c.limiter.Define(ctx, parts[i]...); err != nil {
			return err
		}
	}
	for i, c := range s.scopes {
		c.limits.replace(parts[i], true)
	}
	return nil
}

// parts returns the limits of each scope: a shard has its limits, or its part of them.
func (s *Server) parts(limits []throttle.Limit) ([][]throttle.Limit, error) {
	parts := make([][]throttle.Limit, len(s.scopes))
	for i, c := range s.scopes {
		var err error
		if parts[i], err = s.shards.LimitsIn(c.shard, limits); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// define tells the limiter the limits that it does not know. It is called before every request, and
// costs a lock once they are told.
func (s *scope) define(ctx context.Context) error {
	list, version := s.limits.undefined()
	if len(list) == 0 {
		return nil
	}
	if err := s.checkShards(ctx); err != nil {
		return fmt.Errorf("%w: %w", throttle.ErrUnavailable, err) // the jobs wait
	}
	began := time.Now()
	err := s.limiter.Define(ctx, list...)
	s.noteLimiter(ctx, began, err)
	if err == nil {
		s.limits.markDefined(version)
	}
	return err
}

// A definition is what Redis stores of a limit.
type definition struct {
	configText  string // the text in which a program or its config defined the limit last
	currentText string // the text in force, which may have been set at run time
	paused      bool
	lost        bool // a part is missing, or all of it and the limit was not deleted on purpose
}

// definitions reads limits in one round trip. A limit that was deleted has the zero definition.
func definitions(ctx context.Context, limiter *waitdb.DB, names []string) (map[string]definition, error) {
	rdb, prefix := limiter.Scope()
	fields := map[string]*redis.MapStringStringCmd{}
	var deleted, summaries *redis.SliceCmd
	var listed *redis.StringSliceCmd
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			fields[name] = p.HGetAll(ctx, prefix+"limit:"+name)
		}
		deleted = p.HMGet(ctx, prefix+"deleted", names...)
		summaries = p.HMGet(ctx, prefix+"summaries", names...)
		listed = p.SMembers(ctx, prefix+"limits")
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := map[string]definition{}
	for i, name := range names {
		of := fields[name].Val()
		if len(of) == 0 && deleted.Val()[i] != nil {
			all[name] = definition{}
			continue
		}
		l, complete := limiter.Internals().Parse(name, of)
		all[name] = definition{
			configText: of["file"], currentText: of["text"], paused: l.Paused,
			lost: !complete || summaries.Val()[i] == nil || !slices.Contains(listed.Val(), name),
		}
	}
	return all, nil
}

// logged is which differences of limits were logged, so that each is logged once.
type loggedDifferences struct {
	startupLogged bool              // limits that are paused or were set at run time
	files         map[string]string // by limit: what the config of another process says
	lost          map[string]bool
}

// compareLimits compares the server's limits with what Redis stores of them. It defines a limit
// again if a part of its definition is lost. It logs which limits the config of another process has
// defined differently: if two versions of a config run at a time, the one read last holds. The
// first time it also logs which limits are paused or were set at run time, because that outlives a
// restart.
func (s *scope) compareLimits(ctx context.Context) {
	ours := s.limits.defined()
	if len(ours) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(ours))
	stored, err := definitions(ctx, s.limiter, names)
	if err != nil {
		return // the jobs that ask for permits report an outage
	}
	for _, name := range names {
		d := stored[name]
		if d.lost {
			s.defineLost(ctx, ours[name])
		} else if d.currentText != "" {
			s.logDifferences(name, ours[name].String(), d)
		}
		s.logged.lost[name] = d.lost
	}
	s.logged.startupLogged = true
}

// defineLost defines a limit again. It removes the text first, so that Redis does not take what is
// left of the definition for one.
func (s *scope) defineLost(ctx context.Context, l throttle.Limit) {
	rdb, prefix := s.limiter.Scope()
	if rdb.HDel(ctx, prefix+"limit:"+l.Name, "text").Err() != nil || s.limiter.Define(ctx, l) != nil {
		return // the next comparison tries again
	}
	if !s.logged.lost[l.Name] {
		s.log.Warn("Redis had lost a part of a limit: it is defined again", "limit", l.Name)
	}
}

func (s *scope) logDifferences(name, text string, d definition) {
	if d.paused && !s.logged.startupLogged {
		s.log.Warn("a limit is paused", "limit", name, "end it with", "worker limits resume "+name)
	}
	switch {
	case d.configText == "" || d.configText == text:
		delete(s.logged.files, name)
		if d.currentText != text && !s.logged.startupLogged {
			s.log.Warn("a limit was set at run time and differs from its definition: it stays so until the definition changes",
				"limit", name, "now", d.currentText, "defined", text)
		}
	case d.configText != s.logged.files[name]:
		s.logged.files[name] = d.configText
		s.log.Warn("another process's config says otherwise of a limit, and holds: it was read later",
			"limit", name, "now", d.configText, "here", text)
	}
}
