package main

import (
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

const limited = "limits: {hourly: {kind: funnel, rate: 1/h}, spare: {kind: funnel, rate: 1/s}, others: {kind: funnel, rate: 1/h, apps: [shop]}}\n"

// testPlan is a plan with the limits of the config, and the Redis of that URL if there is one.
type testPlan struct {
	plan
	conf *config.Config
}

func newTestPlan(t *testing.T, url string) *testPlan {
	t.Helper()
	t.Chdir(t.TempDir()) // no worker runs there
	conf, err := config.Parse("headgate.yaml", []byte(limited))
	if err == nil && url != "" {
		conf.Redis, err = config.ParseRedisURL(url)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &testPlan{plan{queues: map[string]bool{}, parts: map[shard.Shard]*forecast.Options{}}, conf}
}

// planJobs plans a job of each moment.
func planJobs(t *testing.T, p *testPlan, rule scheduler.Rule, moments ...time.Time) {
	t.Helper()
	for _, at := range moments {
		if err := p.add(line{Checked: jobspec.Checked{Job: jobspec.Job{Options: jobspec.Options{Queue: "default", At: at}}, Rule: rule}}); err != nil {
			t.Fatal(err)
		}
	}
}

// wantPlan compares the estimates of the first and the last planned job.
func wantPlan(t *testing.T, p *testPlan, first, last time.Duration, limit string) {
	t.Helper()
	f, l, err := p.forecast(t.Context(), p.conf, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f, l = p.bound(f, l)
	if f.StartsIn.Round(time.Minute) != first || l.StartsIn.Round(time.Minute) != last || !f.Known || !l.Known || l.Limit != limit {
		t.Errorf("the first %+v, the last %+v; want in %s and in %s, when limit %q allows it", f, l, first, last, limit)
	}
}

var (
	now    = time.Time{}
	hourly = scheduler.Rule{Needs: []throttle.Need{{Limit: "hourly", Cost: 1}}}
)

func TestPlanWithoutRedis(t *testing.T) {
	p := newTestPlan(t, "")
	planJobs(t, p, scheduler.Rule{}, now)
	wantPlan(t, p, 0, 0, "")
	planJobs(t, p, hourly, now, now, now)
	wantPlan(t, p, 0, 2*time.Hour, "hourly")
	planJobs(t, p, scheduler.Rule{}, time.Now().Add(5*time.Hour))
	wantPlan(t, p, 0, 5*time.Hour, "")
}

// Planned jobs run after the waiting ones. A limit that only the config has is unused.
func TestPlan_BehindWaitingJobs(t *testing.T) {
	rdb := redistest.Run(t)
	p := newTestPlan(t, rdb.URL())
	planJobs(t, p, hourly, now, now)
	wantPlan(t, p, 0, time.Hour, "hourly")

	client := rdb.Client()
	defer client.Close()
	limiter := p.conf.WaitDB(client)
	if err := limiter.Define(t.Context(), p.conf.Limits...); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"runs", "waits"} {
		job := waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: id}, Grant: time.Hour}
		if _, err := limiter.Acquire(t.Context(), job, hourly.Needs...); err != nil {
			t.Fatal(err)
		}
	}
	p = newTestPlan(t, rdb.URL())
	planJobs(t, p, hourly, now)
	wantPlan(t, p, 2*time.Hour, 2*time.Hour, "hourly")
}

// Planned jobs of a queue with shards run after the jobs that wait in their shard.
func TestPlan_BehindWaitingJobsOfAShard(t *testing.T) {
	part := shard.Shard{Queue: "crawl", Index: 2, Count: 4}
	p := newTestPlan(t, "")
	if err := p.add(line{Checked: jobspec.Checked{Job: jobspec.Job{Options: jobspec.Options{Queue: "crawl"}}, Rule: hourly, Shard: part}}); err != nil {
		t.Fatal(err)
	}
	want := &forecast.Options{}
	if err := want.Plan(waitdb.Job{JobID: throttle.JobID{Queue: "crawl.2"}}, 1, hourly.Needs...); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p.parts[part], want) {
		t.Errorf("planned %+v, want the lane of the shard: %+v", p.parts[part], want)
	}
}

// Planned jobs wait behind the jobs of their fairness key, and take turns with jobs of other keys.
func TestPlan_FairnessKeys(t *testing.T) {
	rdb := redistest.Run(t)
	p := newTestPlan(t, rdb.URL())
	client := rdb.Client()
	defer client.Close()
	limiter := p.conf.WaitDB(client)
	if err := limiter.Define(t.Context(), p.conf.Limits...); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"runs", "1", "2", "3", "4", "5", "6"} {
		job := waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: id}, Grant: time.Hour, Fair: "large"}
		if _, err := limiter.Acquire(t.Context(), job, hourly.Needs...); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		fair        string
		weight      int
		first, last time.Duration
	}{
		{"large", 1, 7 * time.Hour, 8 * time.Hour},
		{"small", 1, 2 * time.Hour, 4 * time.Hour},
		{"small", 3, time.Hour, 2 * time.Hour},
	} {
		p := newTestPlan(t, rdb.URL())
		planJobs(t, p, scheduler.Rule{Needs: hourly.Needs, FairnessKey: tt.fair, FairnessWeight: tt.weight}, now, now)
		wantPlan(t, p, tt.first, tt.last, "hourly")
	}
}
