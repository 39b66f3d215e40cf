package scheduler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// startOf is how a server's start ends.
func startOf(t *testing.T, rdb redis.UniversalClient) error {
	t.Helper()
	rules := Rules{
		Limits:  []throttle.Limit{funnel("its-own", 1, 1)},
		RuleFor: func(context.Context, *asynq.Task) (Rule, error) { return Rule{}, nil },
	}
	s, err := NewServer(rdb, rules, asynq.Config{Logger: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s.Start(asynq.NewServeMux())
}

// contents is what the limiter keeps, as text.
func (st *stack) contents() string {
	var lines []string
	for _, key := range st.limits.Keys(st.t.Context(), "hg:*").Val() {
		lines = append(lines, fmt.Sprint(key, (&damager{ctx: st.t.Context(), rdb: st.limits}).members(key), st.limits.Get(st.t.Context(), key).Val()))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// makeOld has what waits be kept as by a version that said since when in seconds.
func (st *stack) makeOld() {
	ctx, jobs := st.t.Context(), scopePrefix+"jobs"
	st.limits.Set(ctx, scopePrefix+"epoch", fmt.Sprint(waitdb.Version-1, " a name"), 0)
	for job, record := range st.limits.HGetAll(ctx, jobs).Val() {
		if lines := strings.SplitN(record, "\n", 3); len(lines) == 3 && len(lines[1]) > 6 {
			lines[1] = lines[1][:len(lines[1])-6]
			st.limits.HSet(ctx, jobs, job, strings.Join(lines, "\n"))
		}
	}
}

// An older version has left jobs that wait. While one of its workers gives turns a
// worker of this version does not start, and changes nothing. After that it brings over
// what waits: each job runs, in time and within its limit, whose meter goes on.
func TestVersion_OlderIsConverted(t *testing.T) {
	slow(t)
	for _, gone := range []string{"", "lanes"} {
		t.Run("without "+gone, func(t *testing.T) { bringOver(t, gone) })
	}
}

// bringOver does that where a hand has deleted what is kept under a key.
func bringOver(t *testing.T, gone string) {
	patient := func(*asynq.Task) (Rule, error) {
		return Rule{Needs: []throttle.Need{{Limit: "api"}}, MaxWait: time.Hour}, nil
	}
	s := settings{config: quick, limits: []throttle.Limit{perMinute(6, 3)}, rule: patient}
	virtual(t, s, func(t *testing.T, st *stack) {
		ctx, began := t.Context(), time.Now()
		for range 20 {
			st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0)))
		}
		time.Sleep(time.Second)
		st.server.Shutdown()
		st.makeOld()
		st.must(st.limits.HSet(ctx, scopePrefix+"meters", "api|", 3).Err()) // reserved, and nobody comes
		limiter := throttle.New(st.limits, throttle.Options{})
		st.must(limiter.Set(ctx, funnel("by-hand", 1, 1)))
		st.must(st.limits.Del(ctx, scopePrefix+"summaries", scopePrefix+gone).Err())
		st.must(st.limits.Set(ctx, scopePrefix+"leader", "an older worker", 6*time.Second).Err())
		before := st.contents()
		if err := startOf(t, st.rdb); err == nil || !strings.Contains(err.Error(), "stop them all") {
			t.Errorf("beside an older worker: %v", err)
		}
		if after := st.contents(); after != before {
			t.Errorf("it changed\n%s\nto\n%s", before, after)
		}
		time.Sleep(7 * time.Second)
		second := start(t, st.rdb, s)
		time.Sleep(172*time.Second - time.Since(began))
		second.wantOnceEach(17)
		second.wantClean()
		if d, err := limiter.Allow(ctx, "by-hand", ""); err != nil || !d.OK() {
			t.Errorf("a limit that was set by hand: %v, %v", d, err)
		}
		wantNotOver(t, s.limits[0], time.Time{}, st, second)
	})
}

// What a later version keeps is left alone, whether its workers live or not.
func TestVersion_LaterIsRefused(t *testing.T) {
	_, rdb := redistest.Mini(t)
	epoch := fmt.Sprint(waitdb.Version+1, " a name")
	rdb.Set(t.Context(), scopePrefix+"epoch", epoch, 0)
	err := startOf(t, rdb)
	if err == nil || !strings.Contains(err.Error(), "update this worker") {
		t.Errorf("in a later version's scope: %v", err)
	}
	if is := rdb.Get(t.Context(), scopePrefix+"epoch").Val(); is != epoch {
		t.Errorf("its data are %q now", is)
	}
}

// claimBefore is how workers of before there were versions claimed a scope.
const claimBefore = `
local data, before, address, life_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local claim = redis.call('GET', KEYS[1] .. 'asynq')
if claim then
  local its_data, its_address = string.match(claim, '^([^\n]*)\n(.*)$')
  if its_data ~= data and its_data ~= before and its_address ~= address then return its_address end
end
redis.call('SET', KEYS[1] .. 'asynq', data .. '\n' .. address, 'PX', life_ms)
return ''`

// A worker of before there were versions does not start beside one of this version; and
// one of this version, after those have stopped, takes their claim for its own Redis's.
func TestVersion_OlderRunning(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		claim := func(data, address string) string {
			t.Helper()
			other, err := rdb.Eval(t.Context(), claimBefore, []string{scopePrefix}, data, "", address, 60000).Text()
			if err != nil {
				t.Fatal(err)
			}
			return other
		}
		address := addressOf(rdb, "")
		if other := claim("its data", "elsewhere"); other != "" {
			t.Fatal(other)
		}
		if err := startOf(t, rdb); err == nil || !strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("beside another asynq Redis, claimed as before: %v", err)
		}
		rdb.Del(t.Context(), scopePrefix+"asynq")
		if other := claim("its data", address); other != "" {
			t.Fatal(other)
		}
		for range 2 { // the second takes what the first has written
			if err := startOf(t, rdb); err != nil {
				t.Errorf("its own Redis, claimed as before: %v", err)
			}
		}
		data := rdb.Get(t.Context(), redishealth.DataKey).Val()
		if other := claim(data, address); !strings.Contains(other, address+" (its workers keep data of another version)") {
			t.Errorf("a worker of before is told %q", other)
		}
	})
}
