package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/throttle"
)

// otherKeys are the keys that this test's server does not write.
var otherKeys = []string{
	"crawls", "crawl:", "crawl_seen:", "crawl_hosts:", "crawl_pages:", "crawl_before:", "robots:", "robots_busy:", "crawl_paced:", // tasks
	"full",     // of lanes whose workers are busy: see TestCorruption_Lane
	"granted:", // gone within the same moment of virtual time: see TestCorruption_Records
}

// notRestored are the keys of what only Redis knew, and those that the next call writes.
var notRestored = []string{"deleted", "blocked:", "overrides:", "ending:", "changelog", "cell:", "granted:", "full"}

// TestLostKeys: whatever key of a scope Redis loses while jobs wait, all heals within a minute,
// each job runs once, and none is archived. TestCorruption_Records removes parts of keys.
func TestLostKeys(t *testing.T) {
	slow(t)
	text, err := os.ReadFile("../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `hg:\\{scope\\}:(\\w+:?).*?` \\| ([\\w ]+) \\|").FindAllStringSubmatch(string(text), -1) {
		if row[2] == "channel" || slices.Contains(otherKeys, row[1]) {
			continue
		}
		t.Run(row[1], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, rdb := redistest.Mini(t)
				lostKey(t, rdb, row[1])
			})
		})
	}
}

func lostKey(t *testing.T, rdb redis.UniversalClient, family string) {
	var log bytes.Buffer
	w := newLossyWorld(t, rdb, &log)
	time.Sleep(5 * time.Second)
	var keys []string
	for range 60000 {
		if keys = w.keys(family); len(keys) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if len(keys) == 0 {
		t.Fatalf("there is no key %s", family)
	}
	before := w.families()
	definitions := w.definitions()
	for _, key := range keys {
		rdb.Del(t.Context(), key)
	}
	removed := time.Now()
	time.Sleep(time.Minute)
	synctest.Wait()
	(&damager{ctx: t.Context(), rdb: rdb}).inOrder(t, "demand")
	for _, family := range before {
		if !slices.Contains(w.families(), family) && !slices.Contains(notRestored, family) {
			t.Errorf("after a minute %s is not there", family)
		}
	}
	if now := w.definitions(); !maps.Equal(now, definitions) {
		t.Errorf("limits\n%v, want\n%v", now, definitions)
	}
	time.Sleep(90 * time.Second)
	ran, ticks := map[string]int{}, 0
	for _, r := range w.ran() {
		if ran[r.id]++; !strings.Contains(r.id, "@") {
			continue
		}
		if delete(ran, r.id); r.at.After(removed.Add(time.Minute)) {
			ticks++
		}
	}
	for id, n := range ran {
		if n != 1 {
			t.Errorf("job %s ran %d times", id, n)
		}
	}
	if len(ran) != w.jobs {
		t.Errorf("%d of %d jobs ran", len(ran), w.jobs)
	}
	if ticks < 8 {
		t.Errorf("the schedule had %d ticks in 90 seconds, want 9", ticks)
	}
	for _, queue := range []string{"default", "other"} {
		archived, err := w.tasks.ListArchivedTasks(queue)
		if err != nil {
			t.Error(err)
		}
		for _, job := range archived {
			t.Errorf("a job is archived: %s", job.LastErr)
		}
	}
	w.wantClean()
	if t.Failed() {
		t.Log(log.String())
	}
}

// A lossyWorld is a worker whose jobs wait for limits of all kinds.
type lossyWorld struct {
	*stack
	jobs int
}

func newLossyWorld(t *testing.T, rdb redis.UniversalClient, log *bytes.Buffer) *lossyWorld {
	slow := throttle.PerMinute(20)
	limits := []throttle.Limit{
		{
			Name: "api", Kind: throttle.Funnel, Rate: slow, Capacity: 1, Adapt: &throttle.Adapt{Min: throttle.PerMinute(1)},
			Overrides: map[string]throttle.Override{"host": {Rate: throttle.PerMinute(21)}},
		},
		{Name: "bucket", Kind: throttle.TokenBucket, Rate: slow, Capacity: 2},
		{Name: "log", Kind: throttle.SlidingLog, Rate: slow},
		{Name: "parts", Kind: throttle.SlidingWindow, Rate: slow},
		{Name: "window", Kind: throttle.FixedWindow, Rate: slow},
		{Name: "day", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1000), Zone: "Europe/Berlin"},
		{Name: "slots", Kind: throttle.Concurrency, Capacity: 3, Lease: 30 * time.Second},
	}
	ctx := t.Context()
	st := start(t, rdb, settings{
		config: asynq.Config{Concurrency: 20, DelayedTaskCheckInterval: time.Second, Queues: map[string]int{"default": 2, "other": 1}},
		limits: limits,
		rule: func(task *asynq.Task) (Rule, error) {
			payload, fair, _ := strings.Cut(string(task.Payload()), ",")
			r, err := ruleOfPayload(asynq.NewTask("job", []byte(payload)))
			r.FairnessKey, r.MaxWait = fair, time.Hour
			return r, err
		},
		handle: func(context.Context, *asynq.Task) error { time.Sleep(200 * time.Millisecond); return nil },
		log:    slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	w := &lossyWorld{stack: st}
	runner := cron.New(rdb, st.client, cron.Options{})
	st.must(runner.Set([]cron.Entry{{Name: "tick", Cron: "@every 10s", Type: "job"}}))
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	st.must(st.limiter.Define(ctx, limits...))
	st.must(st.limiter.Set(ctx, throttle.Limit{Name: "gone", Kind: throttle.Funnel, Rate: slow}))
	st.must(st.limiter.Delete(ctx, "gone"))
	st.must(st.limiter.Block(ctx, "log", "blocked", time.Now().Add(10*time.Minute)))
	st.must(st.limiter.SetKey(ctx, "bucket", "faster", throttle.Override{Rate: throttle.PerMinute(40)}))
	st.must(st.limiter.SetKey(ctx, "bucket", "no more", throttle.Override{Rate: throttle.PerMinute(40)}))
	st.must(st.limiter.UnsetKey(ctx, "bucket", "no more"))
	_, err := st.limiter.Throttle(ctx, "cell", 1, 1, time.Hour, 1)
	st.must(err)
	for i := range 24 {
		for k, needs := range []string{"api", "api/host", "bucket", "log day", "parts slots", "window bucket/faster"} {
			st.enqueue(needing(fmt.Sprint(needs, ",", i%2)), asynq.Queue([]string{"default", "other"}[(i/2+k)%2]))
			w.jobs++
		}
	}
	return w
}

// keys are the keys of a family, such as limit: or jobs.
func (w *lossyWorld) keys(family string) []string {
	if !strings.HasSuffix(family, ":") {
		if w.limits.Exists(w.t.Context(), scopePrefix+family).Val() == 0 {
			return nil
		}
		return []string{scopePrefix + family}
	}
	return w.limits.Keys(w.t.Context(), scopePrefix+family+"*").Val()
}

// families are the families of keys that the scope has.
func (w *lossyWorld) families() (families []string) {
	for _, key := range w.limits.Keys(w.t.Context(), scopePrefix+"*").Val() {
		name, _, several := strings.Cut(strings.TrimPrefix(key, scopePrefix), ":")
		if several {
			name += ":"
		}
		families = append(families, name)
	}
	slices.Sort(families)
	return slices.Compact(families)
}

// definitions are the limits as text.
func (w *lossyWorld) definitions() map[string]string {
	all, err := w.limiter.Limits(w.t.Context())
	w.must(err)
	definitions := map[string]string{}
	for _, l := range all {
		definitions[l.Name] = l.String()
	}
	return definitions
}
