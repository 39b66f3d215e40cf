package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// startError starts a server, and returns the error.
func startError(t *testing.T, rdb redis.UniversalClient) error {
	t.Helper()
	return newServer(t, rdb, []throttle.Limit{funnel("its-own", 1, 1)}, asynq.Config{}).Start(asynq.NewServeMux())
}

// contents is what the limiter keeps, as text.
func (st *stack) contents() string {
	var lines []string
	for _, key := range st.limits.Keys(st.t.Context(), "hg:*").Val() {
		lines = append(lines, fmt.Sprint(key, contentsOf(st.limits, key), st.limits.Get(st.t.Context(), key).Val()))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// makeOld changes the records of waiting jobs to those of a version that counted time in seconds.
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

// TestVersion_OlderIsConverted: an older version has left waiting jobs. While one of its workers
// leads, a worker of this version does not start, and changes nothing. After that it converts the
// records: each job runs in time and within its limit, whose meter goes on.
func TestVersion_OlderIsConverted(t *testing.T) {
	slow(t)
	for _, gone := range []string{"", "lanes"} {
		t.Run("without "+gone, func(t *testing.T) { convert(t, gone) })
	}
}

// convert does that after an operator has deleted a key.
func convert(t *testing.T, gone string) {
	rule := needs("api")
	rule.MaxWait = time.Hour
	s := settings{config: quick, limits: []throttle.Limit{perMinute(6, 3)}, rule: always(rule)}
	virtual(t, s, func(t *testing.T, st *stack) {
		ctx, began := t.Context(), time.Now()
		st.enqueueN(20, "")
		time.Sleep(time.Second)
		st.server.Shutdown()
		st.makeOld()
		st.must(st.limits.HSet(ctx, scopePrefix+"meters", "api|", 3).Err()) // reserved, and no job comes
		limiter := throttle.New(st.limits, throttle.Options{})
		st.must(limiter.Set(ctx, funnel("by-hand", 1, 1)))
		st.must(st.limits.Del(ctx, scopePrefix+"summaries", scopePrefix+gone).Err())
		st.must(st.limits.Set(ctx, scopePrefix+"leader", "an older worker", 6*time.Second).Err())
		before := st.contents()
		if err := startError(t, st.rdb); err == nil || !strings.Contains(err.Error(), "stop all of them") {
			t.Errorf("beside an older worker: %v", err)
		}
		if after := st.contents(); after != before {
			t.Errorf("it changed\n%s\nto\n%s", before, after)
		}
		time.Sleep(7 * time.Second)
		second := st.beside(s)
		time.Sleep(172*time.Second - time.Since(began))
		second.wantOnceEach(17)
		second.wantClean()
		if d, err := limiter.Allow(ctx, "by-hand", ""); err != nil || !d.OK() {
			t.Errorf("a limit that was set by hand: %v, %v", d, err)
		}
		wantNotOver(t, s.limits[0], time.Time{}, st, second)
	})
}

// TestVersion_LaterIsRefused: data of a later version are left alone, also if none of its workers
// lives.
func TestVersion_LaterIsRefused(t *testing.T) {
	_, rdb := redistest.Mini(t)
	epoch := fmt.Sprint(waitdb.Version+1, " a name")
	rdb.Set(t.Context(), scopePrefix+"epoch", epoch, 0)
	err := startError(t, rdb)
	if err == nil || !strings.Contains(err.Error(), "update this worker") {
		t.Errorf("in a later version's scope: %v", err)
	}
	if is := rdb.Get(t.Context(), scopePrefix+"epoch").Val(); is != epoch {
		t.Errorf("its data are %q now", is)
	}
}
