package scheduler

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/testutil/proctest"
)

// A handler that goes on after the end of its context is named by the log and in the record of its
// process, until it returns. A handler that returns in time is not.
func TestStuck_Named(t *testing.T) {
	for name, row := range map[string]struct {
		runs   time.Duration
		why    string // "" if it returns in time
		cancel bool
	}{
		"timeout":         {runs: 40 * time.Second, why: "context deadline exceeded"},
		"canceled":        {runs: 40 * time.Second, why: "context canceled", cancel: true},
		"it ends in time": {runs: 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var log proctest.Log
			s := settings{config: quick, handle: takes(row.runs), rule: always(Rule{}), log: slog.New(slog.NewTextHandler(&log, nil))}
			virtual(t, s, func(t *testing.T, st *stack) {
				timeout := 3 * time.Second
				if row.cancel {
					timeout = time.Hour
				}
				id := st.enqueue(asynq.NewTask("job", nil, asynq.MaxRetry(0), asynq.Timeout(timeout)))
				time.Sleep(2 * time.Second)
				if row.cancel {
					st.must(st.tasks.CancelProcessing(id))
				}
				named := func(when time.Duration, want bool) {
					t.Helper()
					time.Sleep(when)
					_, scope := st.limiter.Scope()
					all, err := stats.ReadProcesses(context.Background(), st.limits, strings.Trim(scope, "hg:{}"))
					if err != nil || len(all) != 1 {
						t.Fatal(all, err)
					}
					if is := len(all[0].Stuck) == 1 && all[0].Stuck[0].ID == id && all[0].Stuck[0].Type == "job"; is != want {
						t.Errorf("the process names %+v, want the job: %t", all[0].Stuck, want)
					}
				}
				named(9*time.Second, false)
				named(5*time.Second, row.why != "")
				line := "why=\"" + row.why + "\""
				if n := strings.Count(log.String(), "a handler has not returned"); (n == 1) != (row.why != "") || row.why != "" && !strings.Contains(log.String(), "type=job job="+id+" queue=default "+line) {
					t.Errorf("%d warnings:\n%s", n, log.String())
				}
				named(time.Minute, false)
			})
		})
	}
}
