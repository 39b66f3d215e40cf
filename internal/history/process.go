package history

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
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
	Seen time.Time `json:"seen"`
	Gone bool      `json:"gone"`
}

// self is what a process says of itself, but for what changes.
func self() Process {
	host, _ := os.Hostname()
	return Process{Host: host, PID: os.Getpid(), Version: version(), Started: time.Now()}
}

const module = "github.com/headgate/headgate"

// version is which headgate is in this program, with the commit where it has no version.
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
	text := cmp.Or(info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && text == "(devel)" {
			text += " " + s.Value[:min(len(s.Value), 12)]
		}
	}
	return text
}

// Describe says what this process goes by from now on: its config. It may be called at any
// time.
func (r *Recorder) Describe(config string) { r.config.Store(&config) }

func (r *Recorder) sayAlive(ctx context.Context) {
	of := r.self
	of.Concurrency = r.Concurrency
	if config := r.config.Load(); config != nil {
		of.Config = *config
	}
	for _, t := range r.Tasks() {
		of.Running += t.Busy
	}
	if text, err := json.Marshal(of); err == nil {
		r.say(ctx, string(text))
	}
}

// say writes that, or with an empty text that the process has ended.
func (r *Recorder) say(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := lua.Alive.Run(ctx, r.rdb, []string{r.prefix}, r.process, text, aliveLife.Microseconds()).Err(); err != nil {
		r.Unwritten.Add(1)
	}
}

// Processes are those of a scope that live, and that are gone without a word within the
// last hour; by host, and by when they started.
func Processes(ctx context.Context, rdb redis.UniversalClient, scope string) ([]Process, error) {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	seen, err := rdb.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: lua.Prefix(scope) + "workers", Start: 0, Stop: maxProcesses - 1, Rev: true}).Result()
	if err != nil || len(seen) == 0 {
		return []Process{}, err
	}
	keys := make([]string, len(seen))
	for i, z := range seen {
		keys[i] = lua.Prefix(scope) + "worker:" + z.Member.(string)
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
		p.ID, p.Seen = seen[i].Member.(string), time.UnixMicro(int64(seen[i].Score))
		p.Gone = now.Sub(p.Seen) > goneAfter
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), a.Started.Compare(b.Started), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}
