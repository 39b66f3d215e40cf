package jobspec

import (
	"testing"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// A job that could never run is not added.
func TestCheckNeeds(t *testing.T) {
	conf, err := config.Parse("test", []byte("limits: {hourly: {kind: funnel, rate: 1/h}, others: {kind: funnel, rate: 1/h, apps: [other]}}"))
	if err != nil {
		t.Fatal(err)
	}
	for want, needs := range map[string][]throttle.Need{
		"cost 2 is above the capacity 1 of limit hourly: it can never run": {{Limit: "hourly", Cost: 2}},
		"limit others is for other apps: see apps: and app: in the config": {{Limit: "others", Cost: 1}},
		"": {{Limit: "hourly", Cost: 1}},
	} {
		got := ""
		if err := checkNeeds(conf, "default", scheduler.Rule{Needs: needs}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: %q, want %q", needs, got, want)
		}
	}
}
