package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/throttle"
)

// SINCE is a duration without a date, and a backlog that starts at once has the ETA now.
func TestStatus_Limits(t *testing.T) {
	var out strings.Builder
	now := time.Now()
	limit := inspect.Limit{
		Limit:       throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerHour(1)},
		LimitDemand: stats.LimitDemand{Waiting: 2, KeyCount: 1, Since: now.Add(-72 * time.Second)}, ETA: forecast.Estimate{Known: true},
	}
	if err := cli.Table(&out, []limitStatus{newLimitStatus(limit, now)}, "DENIED", "WAITING", "KEYS", "SINCE", "ETA"); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(strings.Fields(out.String()), " "), "0.0/s 2 1 1 min 12 s now"; !strings.Contains(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}
