package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestServer_Start_LogsDifferences: a server that starts says once which of its limits are
// paused in Redis or were set at run time.
func TestServer_Start_LogsDifferences(t *testing.T) {
	virtual(t, settings{limits: []throttle.Limit{perMinute(6, 1)}}, func(t *testing.T, st *stack) {
		st.must(st.limiter.Set(t.Context(), perMinute(30, 1)))
		st.must(st.limiter.Pause(t.Context(), "api"))
		var log journal
		start(t, st.rdb, settings{config: idle, limits: []throttle.Limit{perMinute(6, 1)}, log: log.logger()})
		time.Sleep(3 * claimEach)
		for _, line := range []string{
			`msg="a limit was set at run time and differs from its definition: it stays so until the definition changes"`,
			`msg="a limit is paused"`,
		} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("logged %d times, want once: %s\nthe log: %s", n, line, log.String())
			}
		}
	})
}

// TestDefinitions_Lost: a definition that lacks any one of its fields is lost. A limit that was
// deleted is not.
func TestDefinitions_Lost(t *testing.T) {
	_, rdb := redistest.Mini(t)
	limiter := throttle.New(rdb, throttle.Options{})
	for _, l := range []throttle.Limit{
		{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerMinute(6), Capacity: 2, Apps: []string{"a"}, MaxBlock: time.Hour, Adapt: &throttle.Adapt{Min: throttle.PerMinute(1)}},
		{Name: "day", Kind: throttle.FixedWindow, Rate: throttle.PerDay(100), Zone: "Europe/Berlin", Margin: time.Second},
		{Name: "slots", Kind: throttle.Concurrency, Capacity: 3},
	} {
		lost := func() bool {
			t.Helper()
			all, err := definitions(t.Context(), waitdb.New(limiter), []string{l.Name})
			if err != nil {
				t.Fatal(err)
			}
			return all[l.Name].lost
		}
		if err := limiter.Define(t.Context(), l); err != nil || lost() {
			t.Fatalf("%s is lost from the start: %v", l.Name, err)
		}
		key := scopePrefix + "limit:" + l.Name
		for field, value := range rdb.HGetAll(t.Context(), key).Val() {
			rdb.HDel(t.Context(), key, field)
			if want := field != "file" && field != "since_us"; lost() != want {
				t.Errorf("%s without %s: lost %t, want %t", l.Name, field, !want, want)
			}
			rdb.HSet(t.Context(), key, field, value)
		}
		if err := limiter.Delete(t.Context(), l.Name); err != nil || lost() {
			t.Errorf("%s is lost after it was deleted: %v", l.Name, err)
		}
	}
}
