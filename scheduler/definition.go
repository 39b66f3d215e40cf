package scheduler

import (
	"context"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// A definition is what Redis keeps of a limit.
type definition struct {
	file   string // the text in which a program or its config defined the limit last
	text   string // the text in force, which may have been set at run time
	paused bool
	lost   bool // a part is missing, or all of it and the limit was not deleted on purpose
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
			file: of["file"], text: of["text"], paused: l.Paused,
			lost: !complete || summaries.Val()[i] == nil || !slices.Contains(listed.Val(), name),
		}
	}
	return all, nil
}

// logged is which differences of limits were logged, so that each is logged once.
type logged struct {
	start bool              // limits that are paused or were set at run time
	files map[string]string // by limit: what the config of another process says
	lost  map[string]bool
}

// compareLimits compares the server's limits with what Redis keeps of them. It defines a limit
// again if a part of its definition is lost. It logs which limits the config of another process
// has defined otherwise since this one did: if two versions of a config run at a time, the one
// read last holds. The first time it also logs which limits are paused or were set at run time,
// since that outlives a restart.
func (s *Server) compareLimits(ctx context.Context) {
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
		} else if d.text != "" {
			s.logDifferences(name, ours[name].String(), d)
		}
		s.logged.lost[name] = d.lost
	}
	s.logged.start = true
}

// defineLost defines a limit again. Without its text Redis takes none of what is left of it for
// the definition.
func (s *Server) defineLost(ctx context.Context, l throttle.Limit) {
	rdb, prefix := s.limiter.Scope()
	if rdb.HDel(ctx, prefix+"limit:"+l.Name, "text").Err() != nil || s.limiter.Define(ctx, l) != nil {
		return // the next comparison tries again
	}
	if !s.logged.lost[l.Name] {
		s.log.Warn("Redis had lost a part of a limit: it is defined again", "limit", l.Name)
	}
}

func (s *Server) logDifferences(name, text string, d definition) {
	if d.paused && !s.logged.start {
		s.log.Warn("a limit is paused", "limit", name, "end it with", "worker limits resume "+name)
	}
	switch {
	case d.file == "" || d.file == text:
		delete(s.logged.files, name)
		if d.text != text && !s.logged.start {
			s.log.Warn("a limit was set at run time and differs from its definition: it stays so until the definition changes",
				"limit", name, "now", d.text, "defined", text)
		}
	case d.file != s.logged.files[name]:
		s.logged.files[name] = d.file
		s.log.Warn("another process's config says otherwise of a limit, and holds: it was read later",
			"limit", name, "now", d.file, "here", text)
	}
}
