package throttle_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestLimiter_Changes checks that the changelog has each change once, with its actor, and no calls
// without an effect.
func TestLimiter_Changes(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := throttle.New(rdb, throttle.Options{})
		began := rdb.Time(ctx).Val()
		none, err := limiter.Changes(ctx, 10)
		must(t, err)
		expect(t, "changes at first", len(none), 0)

		must(t, limiter.Define(ctx, log(1)))
		must(t, limiter.Define(ctx, log(1)))
		me := throttle.WithActor(ctx, "me@here")
		must(t, limiter.Set(me, log(2)))
		must(t, limiter.Pause(me, "log"))
		must(t, limiter.Resume(me, "log"))
		until := time.Now().Add(time.Hour).Truncate(time.Microsecond)
		must(t, limiter.Block(throttle.WithActor(ctx, "upstream"), "log", "k", until))
		must(t, limiter.Block(me, "log", "k", time.Time{}))
		must(t, limiter.Block(me, "log", "k", time.Time{}))
		must(t, limiter.Internals().BlockFor(me, -time.Second, throttle.Need{Limit: "log", Key: "k"}))
		must(t, limiter.Reset(me, "log", "k"))
		must(t, limiter.Delete(me, "log"))
		if err := limiter.Pause(me, "log"); err == nil {
			t.Error("a limit that was deleted can be paused")
		}

		got, err := limiter.Changes(ctx, 100)
		must(t, err)
		ended := rdb.Time(ctx).Val()
		for i := range got {
			if at := got[i].At; got[i].ID == "" || at.Before(began.Truncate(time.Millisecond)) || at.After(ended) {
				t.Errorf("change %q at %s, want between %s and %s", got[i].ID, at, began, ended)
			}
			got[i].ID, got[i].At = "", time.Time{}
		}
		one, two := log(1).String(), log(2).String()
		expect(t, "changes", got, []throttle.Change{
			{What: "deleted", Limit: "log", By: "me@here", From: two},
			{What: "reset", Limit: "log", Key: "k", By: "me@here"},
			{What: "unblocked", Limit: "log", Key: "k", By: "me@here"},
			{What: "blocked", Limit: "log", Key: "k", By: "upstream", Until: until},
			{What: "resumed", Limit: "log", By: "me@here"},
			{What: "paused", Limit: "log", By: "me@here"},
			{What: "set", Limit: "log", By: "me@here", From: one, To: two},
			{What: "defined", Limit: "log", To: one},
		})
	})
}

// TestInternals_Note checks that changes of schedules, queues and jobs are in the changelog.
func TestInternals_Note(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		me := throttle.WithActor(t.Context(), "me@here")
		limiter := throttle.New(rdb, throttle.Options{})
		long := strings.Repeat("x", 1<<20)
		noted := []throttle.Change{
			{What: "paused", Schedule: "nightly"},
			{What: "retried", Jobs: 1, Job: throttle.JobID{Queue: "mail", ID: "\x1b<b>" + long}},
			{What: "deleted", Jobs: 12, Job: throttle.JobID{Queue: "mail"}},
			{What: "paused", Job: throttle.JobID{Queue: "mail"}},
		}
		for _, c := range noted {
			must(t, limiter.Internals().Note(me, c))
		}
		got, err := limiter.Changes(me, 10)
		must(t, err)
		slices.Reverse(got)
		for i := range noted {
			noted[i].By, noted[i].ID, noted[i].At = "me@here", got[i].ID, got[i].At
		}
		noted[1].Job.ID = noted[1].Job.ID[:200]
		expect(t, "changes", got, noted)
	})
}
