package stats

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

func TestBacklogSample(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := waitdb.New(throttle.New(rdb, throttle.Options{Scope: "s"}))
		hourly := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}
		all := throttle.Limit{Name: "all", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}
		if err := limiter.Define(ctx, hourly, all); err != nil {
			t.Fatal(err)
		}
		var oldest time.Time
		for i := range 20 {
			key := fmt.Sprint("k", i%3)
			job := waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: fmt.Sprint(i)}}
			needs := []throttle.Need{{Limit: "api", Key: key}}
			if i >= 10 {
				needs = append(needs, throttle.Need{Limit: "api", Key: "x"}, throttle.Need{Limit: "all"})
			}
			d, err := limiter.Acquire(ctx, job, needs...)
			if err != nil {
				t.Fatal(err)
			}
			if i == 3 { // the first of each key is allowed
				oldest = d.At
			}
		}
		first, second := New(rdb, script.Prefix("s")), New(rdb, script.Prefix("s"))
		second.sampleBacklog(ctx)
		if none, err := ReadBacklogSample(ctx, rdb, "s"); none != nil || err != nil {
			t.Errorf("%+v, %v of a process that is not the dispatcher", none, err)
		}
		first.IsLeader.Store(true)
		sample := func() *BacklogSample {
			t.Helper()
			first.sampleBacklog(ctx)
			got, err := ReadBacklogSample(ctx, rdb, "s")
			if err != nil || got == nil {
				t.Fatal(got, err)
			}
			return got
		}
		got := sample()
		api, all10 := got.Limits["api"], got.Limits["all"]
		if api.Waiting != 7 || api.Total != 27 || !api.Since.Equal(oldest) || all10.Waiting != 10 || all10.Total != 10 {
			t.Errorf("%+v and %+v; want 7 jobs that wait for api since %s, and 10 that wait for all", api, all10, oldest)
		}
		if in := got.DrainedAt["all"].Sub(got.At); in < 10*time.Hour || in > 11*time.Hour || !got.DrainedAt["api"].Equal(got.DrainedAt["all"]) {
			t.Errorf("the last run at %v, want in eleven hours", got.DrainedAt)
		}
		if api.KeyCount != 4 || len(api.TopKeys) != 4 || api.TopKeys[0] != "x" || api.TopKeys[1] != "k0" {
			t.Errorf("%+v; want 4 keys, the highest demand first", api)
		}
		if err := limiter.Pause(ctx, "all"); err != nil {
			t.Fatal(err)
		}
		// Jobs that need all need api, too.
		if got := sample().DrainedAt; len(got) != 2 || !got["all"].IsZero() || !got["api"].IsZero() {
			t.Errorf("drained at %v; want two unknown times", got)
		}
	})
}
