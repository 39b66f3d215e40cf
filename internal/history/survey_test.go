package history

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// TestSurvey holds what a survey finds against jobs that really wait.
func TestSurvey(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := lanes.New(throttle.New(rdb, throttle.RedisOptions{Scope: "s"}))
		hourly := throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}
		all := throttle.Limit{Name: "all", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour)}
		if err := limiter.Define(ctx, hourly, all); err != nil {
			t.Fatal(err)
		}
		var oldest time.Time
		for i := range 20 {
			key := fmt.Sprint("k", i%3)
			job := lanes.Job{JobID: throttle.JobID{Queue: "q", ID: fmt.Sprint(i)}}
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
		first, second := New(rdb, lua.Prefix("s")), New(rdb, lua.Prefix("s"))
		second.lookAround(ctx)
		if none, err := ReadSurvey(ctx, rdb, "s"); none != nil || err != nil {
			t.Errorf("%+v, %v of a process that gives no turns", none, err)
		}
		first.Leads.Store(true)
		first.lookAround(ctx)
		got, err := ReadSurvey(ctx, rdb, "s")
		if err != nil || got == nil {
			t.Fatal(got, err)
		}
		api := got.Limits["api"]
		if api.Jobs != 17 || !api.Oldest.Equal(oldest) || got.Limits["all"].Jobs != 10 {
			t.Errorf("%+v; want 17 that wait for api since %s, and 10 that will for all", got, oldest)
		}
		if in := got.Lasts["all"].Sub(got.At); in < 10*time.Hour || in > 11*time.Hour || !got.Lasts["api"].Equal(got.Lasts["all"]) {
			t.Errorf("the last run at %v, want in eleven hours", got.Lasts)
		}
		if want := (Backed{"k0", 6}); api.Keys != 3 || len(api.Busiest) != 3 || api.Busiest[0] != want {
			t.Errorf("%+v; want 3 keys, and first %+v", api, want)
		}
		// Without a dispatcher no meter is marked.
		if err := rdb.Del(ctx, lua.Prefix("s")+"contended").Err(); err != nil {
			t.Fatal(err)
		}
		first.Asked(0, false) // something may have changed
		first.lookAround(ctx)
		got, err = ReadSurvey(ctx, rdb, "s")
		if err != nil || got.Limits["api"].Jobs != 17 || got.Limits["all"].Jobs != 10 || got.Limits["api"].Keys != 3 {
			t.Errorf("%+v, %v; want 17 that wait for api at 3 keys, and 10 for all", got, err)
		}
		if err := limiter.Pause(ctx, "all"); err != nil {
			t.Fatal(err)
		}
		first.Asked(0, false)
		first.lookAround(ctx)
		got, err = ReadSurvey(ctx, rdb, "s")
		// What needs all needs api, too.
		if err != nil || !slices.Equal(got.Unknown, []string{"all", "api"}) {
			t.Errorf("%v, %v; want nobody to know when the last runs", got, err)
		}
		if err := limiter.Resume(ctx, "all"); err != nil {
			t.Fatal(err)
		}
		second.Polling.Store(true)
		second.lookAround(ctx)
		if got, err = ReadSurvey(ctx, rdb, "s"); err != nil || len(got.Unknown) > 0 {
			t.Errorf("%v, %v; want a survey of the second process", got, err)
		}
	})
}

// TestOneOfThoseThatPollMakesSurveys: as all jobs are read for one, and another does once it
// is gone.
func TestOneOfThoseThatPollMakesSurveys(t *testing.T) {
	m, rdb := redistest.Mini(t)
	ctx := t.Context()
	looks := func(r *Recorder) bool {
		rdb.Del(ctx, lua.Prefix("s")+"survey")
		r.Asked(0, false) // something may have changed
		r.lookAround(ctx)
		s, err := ReadSurvey(ctx, rdb, "s")
		if err != nil {
			t.Fatal(err)
		}
		return s != nil
	}
	first, second := New(rdb, lua.Prefix("s")), New(rdb, lua.Prefix("s"))
	first.Polling.Store(true)
	second.Polling.Store(true)
	if !looks(first) || looks(second) || !looks(first) {
		t.Error("want surveys of the first process alone")
	}
	m.FastForward(claimLife)
	if !looks(second) || looks(first) {
		t.Error("want surveys of the second process, as the first is gone")
	}
	second.Polling.Store(false)
	first.Leads.Store(true)
	if !looks(first) {
		t.Error("want a survey of the process that gives turns, whoever made them")
	}
}

// TestASurveyTakesItsTime: more jobs than are read in one go are all counted.
func TestASurveyTakesItsTime(t *testing.T) {
	rdb := redistest.Real(t)
	ctx := t.Context()
	const jobs = 1000*surveyPages + 5000
	records := map[string]any{}
	for i := range jobs {
		records[fmt.Sprint("q\n", i)] = fmt.Sprintf("%d\n%d\n250000\n0 1\n1\nq\napi|k%d", i, 1_000_000+i, i%10_000)
	}
	if err := rdb.HSet(ctx, lua.Prefix("s")+"jobs", records).Err(); err != nil {
		t.Fatal(err)
	}
	r := New(rdb, lua.Prefix("s"))
	r.Leads.Store(true)
	r.lookAround(ctx)
	if s, err := ReadSurvey(ctx, rdb, "s"); s != nil || err != nil {
		t.Fatalf("%v, %v: want none before all is read", s, err)
	}
	r.lookAround(ctx)
	s, err := ReadSurvey(ctx, rdb, "s")
	if err != nil || s == nil {
		t.Fatal(s, err)
	}
	if w := s.Limits["api"]; w.Jobs != jobs || w.Keys != 10_000 || len(w.Busiest) != maxBusiest || w.Oldest.UnixMicro() != 1_000_000 {
		t.Errorf("%+v; want %d jobs of 10000 keys since the first", w, jobs)
	}
}

// TestASurveyPassesOverRubbish: records that nobody has written.
func TestASurveyPassesOverRubbish(t *testing.T) {
	_, rdb := redistest.Mini(t)
	rdb.HSet(t.Context(), lua.Prefix("s")+"jobs", "a", "", "b", "1\n2\n3", "c", "x\ny\nz\n0 1\n1\nq\napi|")
	r := New(rdb, lua.Prefix("s"))
	r.Leads.Store(true)
	r.lookAround(t.Context())
	if s, err := ReadSurvey(t.Context(), rdb, "s"); err != nil || s == nil || s.Limits["api"].Jobs != 1 {
		t.Errorf("%+v, %v; want one job", s, err)
	}
}
