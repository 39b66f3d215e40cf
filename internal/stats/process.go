package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

const (
	// aliveEach is how often a process says that it lives, and goneAfter when one counts as
	// gone that has not said so.
	aliveEach = 10 * time.Second
	goneAfter = 3 * aliveEach
	// aliveLife is how long one that is gone without a word is told of.
	aliveLife = time.Hour
	// maxProcesses bounds those that are told of.
	maxProcesses = 1000
)

// Process is one that runs jobs of a scope.
type Process struct {
	ID          string    `json:"-"`
	Host        string    `json:"host"`
	PID         int       `json:"pid"`
	Version     string    `json:"version"`
	Config      string    `json:"config"` // the config's file and a sum of what was in it, or what a program says
	Started     time.Time `json:"started"`
	Running     int64     `json:"running"`     // jobs
	Concurrency int       `json:"concurrency"` // how many at most
	// Seen is when it said so, by Redis's clock, and Gone whether that is too long ago: it
	// has ended without a word, or does not reach Redis.
	LastSeen time.Time `json:"seen"`
	Lost     bool      `json:"gone"`
}

const module = "github.com/headgate/headgate"

// version is which headgate is in this program: where it has no tag, with its commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return cmp.Or(m.Version, "(devel)")
		}
	}
	return cmp.Or(info.Main.Version, "(devel)")
}

// Processes are those of a scope that live, and that are gone without a word within the
// last hour; by host, and by when they started.
func ReadProcesses(ctx context.Context, rdb redis.UniversalClient, scope string) ([]Process, error) {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	seen, err := rdb.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: script.Prefix(scope) + "workers", Start: 0, Stop: maxProcesses - 1, Rev: true}).Result()
	if err != nil || len(seen) == 0 {
		return []Process{}, err
	}
	keys := make([]string, len(seen))
	for i, z := range seen {
		keys[i] = script.Prefix(scope) + "worker:" + z.Member.(string)
	}
	texts, err := rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, err
	}
	all := make([]Process, 0, len(texts))
	for i, text := range texts {
		p := Process{}
		if text, ok := text.(string); !ok || json.Unmarshal([]byte(text), &p) != nil {
			continue
		}
		p.ID, p.LastSeen = seen[i].Member.(string), time.UnixMicro(int64(seen[i].Score))
		p.Lost = now.Sub(p.LastSeen) > goneAfter
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}
