package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

const limited = "limits: {hourly: {kind: funnel, rate: 1/h}, spare: {kind: funnel, rate: 1/s}, others: {kind: funnel, rate: 1/h, apps: [shop]}}\n"

// beginPlan is a plan under the limits of a config, at the Redis of that URL if there is one.
func beginPlan(t *testing.T, url string) (*plan, *config.Config) {
	t.Helper()
	t.Setenv("HOME", t.TempDir()) // no worker runs there
	conf, err := config.Parse("headgate.yaml", []byte(limited))
	if err == nil && url != "" {
		conf.Redis, err = config.ParseRedisURL(url)
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlan(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p, conf
}

// planJobs plans a job of each moment.
func planJobs(t *testing.T, p *plan, needs []throttle.Need, moments ...time.Time) {
	t.Helper()
	for _, at := range moments {
		if err := p.add(t.Context(), jobspec.Job{Options: jobspec.Options{At: at}}, scheduler.Rule{Needs: needs}); err != nil {
			t.Fatal(err)
		}
	}
}

// wantPlan compares the estimates of the first and the last planned job.
func wantPlan(t *testing.T, p *plan, first, last time.Duration, limit string) {
	t.Helper()
	f, l, err := p.estimate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if f.StartsIn.Round(time.Minute) != first || l.StartsIn.Round(time.Minute) != last || !f.Known || !l.Known || l.Limit != limit {
		t.Errorf("the first %+v, the last %+v; want in %s and in %s, when limit %q allows it", f, l, first, last, limit)
	}
}

var (
	now    = time.Time{}
	hourly = []throttle.Need{{Limit: "hourly", Cost: 1}}
)

func TestPlanWithoutRedis(t *testing.T) {
	p, _ := beginPlan(t, "")
	if !strings.HasPrefix(p.basis, "no worker is running") {
		t.Errorf("the times stand for %q", p.basis)
	}
	planJobs(t, p, nil, now)
	wantPlan(t, p, 0, 0, "")
	planJobs(t, p, hourly, now, now, now)
	wantPlan(t, p, 0, 2*time.Hour, "hourly")
	planJobs(t, p, nil, time.Now().Add(5*time.Hour))
	wantPlan(t, p, 0, 5*time.Hour, "")
}

// Planned jobs run after the waiting ones. A limit that only the config has is unused.
func TestPlan_BehindWaitingJobs(t *testing.T) {
	rdb := redistest.Run(t)
	p, conf := beginPlan(t, rdb.URL())
	if !strings.HasSuffix(p.basis, ": hourly, others, spare") {
		t.Errorf("the times stand for %q", p.basis)
	}
	planJobs(t, p, hourly, now, now)
	wantPlan(t, p, 0, time.Hour, "hourly")

	client := rdb.Client()
	defer client.Close()
	limiter := conf.WaitDB(client)
	if err := limiter.Define(t.Context(), conf.Limits...); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"runs", "waits"} {
		job := waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: id}, Grant: time.Hour}
		if _, err := limiter.Acquire(t.Context(), job, hourly...); err != nil {
			t.Fatal(err)
		}
	}
	p, _ = beginPlan(t, rdb.URL())
	if p.basis != "" {
		t.Errorf("the times stand for %q, want for what is in Redis", p.basis)
	}
	planJobs(t, p, hourly, now)
	wantPlan(t, p, 2*time.Hour, 2*time.Hour, "hourly")
}

func TestPlan_ImpossibleNeeds(t *testing.T) {
	p, _ := beginPlan(t, "")
	for reason, need := range map[string]throttle.Need{
		"cost 2 is above the capacity 1 of limit hourly: it can never run": {Limit: "hourly", Cost: 2},
		"limit others is for other apps":                                   {Limit: "others", Cost: 1},
	} {
		if err := p.add(t.Context(), jobspec.Job{}, scheduler.Rule{Needs: []throttle.Need{need}}); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%+v: %v, want %s", need, err, reason)
		}
	}
	if p.jobs != 0 {
		t.Errorf("%d jobs are planned", p.jobs)
	}
}

// Planned jobs wait behind the jobs of their fairness key, and take turns with jobs of other keys.
func TestPlan_FairnessKeys(t *testing.T) {
	rdb := redistest.Run(t)
	_, conf := beginPlan(t, rdb.URL())
	client := rdb.Client()
	defer client.Close()
	limiter := conf.WaitDB(client)
	if err := limiter.Define(t.Context(), conf.Limits...); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"runs", "1", "2", "3", "4", "5", "6"} {
		job := waitdb.Job{JobID: throttle.JobID{Queue: "default", ID: id}, Grant: time.Hour, Fair: "large"}
		if _, err := limiter.Acquire(t.Context(), job, hourly...); err != nil {
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
		p, _ := beginPlan(t, rdb.URL())
		for range 2 {
			rule := scheduler.Rule{Needs: hourly, FairnessKey: tt.fair, FairnessWeight: tt.weight}
			if err := p.add(t.Context(), jobspec.Job{}, rule); err != nil {
				t.Fatal(err)
			}
		}
		wantPlan(t, p, tt.first, tt.last, "hourly")
	}
}
