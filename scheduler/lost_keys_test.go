package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/throttle"
)

// otherKeys are the keys that this test's server does not write.
var otherKeys = []string{
	"crawls", "crawl:", "crawl_seen:", "crawl_hosts:", "crawl_pages:", "crawl_before:", "robots:", "robots_busy:", "crawl_paced:", // tasks
	"drained",  // of workers that an operator drains: see TestDrain_LostKey
	"full",     // of lanes whose workers are busy: see TestCorruption_Lane
	"missing:", // of limits that do not exist, which no job here needs
	"refused:", // of upstreams that refuse jobs: see TestRefusals_LostKey
	"granted:", // gone within the same moment of virtual time: see TestCorruption_Records
}

// notRestored are the keys of what only Redis knew, and those that the next call writes.
var notRestored = []string{"deleted", "blocked:", "overrides:", "ending:", "changelog", "cell:", "granted:", "full"}

// TestLostKeys: whatever key of a scope Redis loses while jobs wait, all heals within a minute,
// each job runs once, and none is archived. TestCorruption_Records removes parts of keys.
func TestLostKeys(t *testing.T) {
	slow(t)
	text := proctest.ReadFile(t, "../docs/design.md")
	for _, row := range regexp.MustCompile("(?m)^\\| `hg:\\{scope\\}:(\\w+:?).*?` \\| ([\\w ]+) \\|").FindAllStringSubmatch(text, -1) {
		if row[2] == "channel" || slices.Contains(otherKeys, row[1]) {
			continue
		}
		t.Run(row[1], func(t *testing.T) {
			t.Parallel()
			lostKey(t, row[1])
		})
	}
}

func lostKey(t *testing.T, family string) {
	var log journal
	virtual(t, lossySettings(log.logger()), func(t *testing.T, st *stack) {
		w := newLossyWorld(t, st)
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
		before, definitions := w.families(), w.definitions()
		for _, key := range keys {
			st.limits.Del(t.Context(), key)
		}
		removed := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		(&damager{ctx: t.Context(), rdb: st.limits}).inOrder(t)
		now := w.families()
		if lost := slices.DeleteFunc(before, func(f string) bool { return slices.Contains(now, f) || slices.Contains(notRestored, f) }); len(lost) > 0 {
			t.Errorf("after a minute %v are not there", lost)
		}
		if now := w.definitions(); now != definitions {
			t.Errorf("limits\n%v, want\n%v", now, definitions)
		}
		time.Sleep(time.Minute)
		once, ticks := map[string]bool{}, 0
		for _, r := range st.ran() {
			if !strings.Contains(r.id, "@") {
				if once[r.id] {
					t.Errorf("job %s ran again", r.id)
				}
				once[r.id] = true
			} else if r.at.After(removed.Add(time.Minute)) {
				ticks++
			}
		}
		if len(once) != w.jobs || ticks < 5 {
			t.Errorf("%d of %d jobs ran, and the schedule had %d ticks in a minute, want 6", len(once), w.jobs, ticks)
		}
		for _, queue := range []string{"default", "other"} {
			if q, err := st.tasks.GetQueueInfo(queue); err != nil || q.Archived > 0 {
				t.Errorf("%+v, %v; want no job archived", q, err)
			}
		}
		st.wantClean()
		if t.Failed() {
			t.Log(log.String())
		}
	})
}

// TestLostKeys_Marks: jobs hold the one slot for 0.4 s each, so a lane that waits for it has 50 turns
// in 20 s only if each freed slot causes a notification, and for that the meter needs its mark.
func TestLostKeys_Marks(t *testing.T) {
	s := settings{config: quick, limits: []throttle.Limit{oneSlot, funnel("pace", 4, 1)}, handle: takes(400 * time.Millisecond), rule: ruleOfPayload}
	virtual(t, s, func(t *testing.T, st *stack) {
		st.enqueueN(300, "slot pace")
		time.Sleep(5 * time.Second)
		st.must(st.limits.Del(t.Context(), scopePrefix+"contended").Err())
		time.Sleep(time.Minute)
		before := len(st.ran())
		time.Sleep(20 * time.Second)
		if n := len(st.ran()) - before; n < 48 {
			t.Errorf("a minute after Redis has lost the marks, %d jobs ran in 20 s, want 50", n)
		}
	})
}

// A lossyWorld is a worker whose jobs wait for limits of all kinds.
type lossyWorld struct {
	*stack
	jobs int
}

// lossySettings are a server whose jobs need limits of all kinds. A job's payload is what it needs, and
// its fairness key.
func lossySettings(log *slog.Logger) settings {
	slow := throttle.PerMinute(10)
	return settings{
		config: asynq.Config{Concurrency: 20, DelayedTaskCheckInterval: time.Second, Queues: map[string]int{"default": 2, "other": 1}},
		limits: []throttle.Limit{
			{
				Name: "api", Kind: throttle.Funnel, Rate: slow, Capacity: 1, Adapt: &throttle.Adapt{Min: throttle.PerMinute(1)},
				Overrides: map[string]throttle.Override{"host": {Rate: throttle.PerMinute(11)}},
			},
			{Name: "bucket", Kind: throttle.TokenBucket, Rate: slow, Capacity: 2},
			{Name: "log", Kind: throttle.SlidingLog, Rate: slow},
			{Name: "parts", Kind: throttle.SlidingWindow, Rate: slow},
			{Name: "window", Kind: throttle.FixedWindow, Rate: slow},
			{Name: "day", Kind: throttle.FixedWindow, Rate: throttle.PerDay(1000), Zone: "Europe/Berlin"},
			{Name: "slots", Kind: throttle.Concurrency, Capacity: 3, Lease: 30 * time.Second},
		},
		rule: func(task *asynq.Task) (Rule, error) {
			payload, fair, _ := strings.Cut(string(task.Payload()), ",")
			r, err := ruleOfPayload(asynq.NewTask("job", []byte(payload)))
			r.FairnessKey, r.MaxWait = fair, time.Hour
			return r, err
		},
		handle: takes(200 * time.Millisecond), log: log,
	}
}

func newLossyWorld(t *testing.T, st *stack) *lossyWorld {
	w := &lossyWorld{stack: st}
	runner := cron.New(st.rdb, st.client, cron.Options{})
	st.must(runner.Set([]cron.Entry{{Name: "tick", Cron: "@every 10s", Type: "job"}}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	st.must(st.limiter.Set(ctx, throttle.Limit{Name: "gone", Kind: throttle.Funnel, Rate: throttle.PerMinute(20)}))
	st.must(st.limiter.Delete(ctx, "gone"))
	st.must(st.limiter.Block(ctx, "log", "blocked", time.Now().Add(10*time.Minute)))
	st.must(st.limiter.SetKey(ctx, "bucket", "faster", throttle.Override{Rate: throttle.PerMinute(20)}))
	st.must(st.limiter.SetKey(ctx, "bucket", "no more", throttle.Override{Rate: throttle.PerMinute(40)}))
	st.must(st.limiter.UnsetKey(ctx, "bucket", "no more"))
	_, err := st.limiter.Throttle(ctx, "cell", 1, 1, time.Hour, 1)
	st.must(err)
	for i := range 14 {
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
func (w *lossyWorld) definitions() string {
	all, err := w.limiter.Limits(w.t.Context())
	w.must(err)
	return fmt.Sprint(all)
}

// TestLostKeys_DeadlineOfRetry: a retried job waits with a MaxWait of an hour, and Redis loses the
// wait deadlines. The job waits on, also if they are lost again before it has asked.
func TestLostKeys_DeadlineOfRetry(t *testing.T) {
	runs := 0
	handle := func(context.Context, *asynq.Task) error {
		if runs++; runs == 1 {
			return errors.New("failed")
		}
		return nil
	}
	rule := needs("a")
	rule.MaxWait, rule.Retry = time.Hour, constantDelay(time.Second)
	virtual(t, settings{config: quick, limits: onePerSecond, rule: always(rule), handle: handle}, func(t *testing.T, st *stack) {
		st.enqueue(needing("a"), asynq.TaskID("it"), asynq.MaxRetry(1))
		time.Sleep(500 * time.Millisecond)
		st.must(st.limiter.Pause(t.Context(), "a"))
		time.Sleep(5 * time.Second)
		for range 3 {
			if n := st.limits.Del(t.Context(), scopePrefix+"deadlines").Val(); n != 1 {
				t.Fatal("no job has a wait deadline")
			}
			time.Sleep(150 * time.Second)
		}
		if st.limits.ZCard(t.Context(), scopePrefix+"deadlines").Val() != 1 {
			t.Error("the job's wait has no deadline")
		}
		st.must(st.limiter.Resume(t.Context(), "a"))
		time.Sleep(5 * time.Second)
		if runs != 2 {
			t.Errorf("the job ran %d times, want 2", runs)
		}
		if q, err := st.tasks.GetQueueInfo("default"); err != nil || q.Size > 0 {
			t.Errorf("%+v, %v; want no job left", q, err)
		}
		st.wantClean()
	})
}
