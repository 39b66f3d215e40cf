package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// The tests below run one job each, or none. Their coverage shows which functions a job goes
// through: see make path.

// runPath enqueues jobs for a server that gives one permit each second.
func runPath(t *testing.T, jobs int) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		st := start(t, rdb, settings{limits: []throttle.Limit{{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}}})
		client := NewClient(rdb)
		time.Sleep(1100 * time.Millisecond) // the server samples its backlog after 1 s and after 6 s
		for range jobs {
			if _, err := client.Enqueue(asynq.NewTask("job", nil)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		st.wantOnce(jobs)
	})
}

func TestPathIdle(t *testing.T)    { runPath(t, 0) }
func TestPathAllowed(t *testing.T) { runPath(t, 1) }
func TestPathDenied(t *testing.T)  { runPath(t, 2) }
