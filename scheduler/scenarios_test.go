package scheduler

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestScenarios: what earlier schedulers here did wrong, with the
// numbers that they did it with, and what must be instead.
func TestScenarios(t *testing.T) {
	for _, row := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"overlapping limits share", overlappingLimitsShare},
		{"cost 5 against new hosts", costAgainstNewHosts},
		{"workers sometimes busy", busyWorkers},
		{"one queue paused", onePausedQueue},
		{"two processes die between grant and promote", deathsBeforePromote},
		{"the leading process loses the queues", leaderLosesQueues},
		{"MaxWait and Deadline under concurrency", patienceUnderConcurrency},
		{"a small tenant with MaxWait", smallTenant},
		{"a big job with MaxWait", bigWithMaxWait},
		{"costs that settle, with MaxWait", costsThatSettle},
		{"MaxWait behind jobs that cannot wait", behindImpatientJobs},
		{"300 jobs whose MaxWait ends together", manyWhoseTimeIsUp},
		{"a short MaxWait behind a long one", shortPatienceBehindLong},
		{"a handler that outlives its Timeout", outlivedTimeout},
		{"a job that kills its worker", killer},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.test(t)
		})
	}
}

// quick are polls as a Server sets them, but for fewer of them: miniredis takes
// a third of a millisecond for each.
var quick = asynq.Config{Concurrency: 4, TaskCheckInterval: 20 * time.Millisecond}

// needing makes a task whose payload says what it needs: limit, limit/key or
// limit:cost, separated by spaces. ruleOfPayload reads it.
func needing(needs string, opts ...asynq.Option) *asynq.Task {
	return asynq.NewTask("job", []byte(needs), append([]asynq.Option{asynq.MaxRetry(0)}, opts...)...)
}

func ruleOfPayload(task *asynq.Task) (Rule, error) {
	var r Rule
	for need := range strings.FieldsSeq(string(task.Payload())) {
		meter, cost, _ := strings.Cut(need, ":")
		limit, key, _ := strings.Cut(meter, "/")
		n, _ := strconv.Atoi(cost)
		r.Needs = append(r.Needs, throttle.Need{Limit: limit, Key: key, Cost: n})
	}
	return r, nil
}

func funnel(name string, perSecond, capacity int) throttle.Limit {
	return throttle.Limit{Name: name, Kind: throttle.Funnel, Rate: throttle.PerSecond(perSecond), Capacity: capacity}
}

// virtualAndReal runs a test in virtual time, and on a redis-server in this
// world's. On that one it must not measure time.
func virtualAndReal(t *testing.T, test func(t *testing.T, rdb redis.UniversalClient)) {
	t.Run("virtual time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, rdb := redistest.Mini(t)
			test(t, rdb)
		})
	})
	t.Run("redis", func(t *testing.T) { test(t, redistest.Real(t)) })
}

// announcing returns a handler that sends the ID of each job, and where.
func announcing(jobs int) (ran chan string, handle func(ctx context.Context, _ *asynq.Task) error) {
	ran = make(chan string, jobs)
	return ran, func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		return nil
	}
}

// wantDenials fails if the jobs of a process were denied more often.
func (st *stack) wantDenials(jobs int, average float64, most int) {
	st.t.Helper()
	st.limiter.mu.Lock()
	defer st.limiter.mu.Unlock()
	all, worst := 0, 0
	for _, n := range st.limiter.denials {
		all, worst = all+n, max(worst, n)
	}
	got := float64(all) / float64(jobs)
	st.t.Logf("%.3f denials a job, most %d", got, worst)
	if got > average || worst > most {
		st.t.Errorf("%.3f denials a job, most %d; want at most %.2f, most %d", got, worst, average, most)
	}
}

// wantLastBy fails unless so many jobs ran, the last at most so long after began.
func (st *stack) wantLastBy(began time.Time, jobs int, within time.Duration) {
	st.t.Helper()
	ran := st.ran()
	if len(ran) != jobs {
		st.t.Errorf("%d jobs ran, want %d", len(ran), jobs)
	}
	last := time.Duration(0)
	for _, r := range ran {
		last = max(last, r.at.Sub(began))
	}
	st.t.Logf("the last ran after %s", last)
	if last > within {
		st.t.Errorf("the last ran after %s, want at most %s", last, within)
	}
}

// wantNothingLeft fails if asynq has anything of a queue's jobs but completed ones.
func (st *stack) wantNothingLeft(queue string) {
	st.t.Helper()
	q, err := st.tasks.GetQueueInfo(queue)
	if err != nil || q.Archived+q.Retry+q.Pending+q.Active+q.Scheduled > 0 {
		st.t.Errorf("queue %s: %+v, %v; want nothing in it", queue, q, err)
	}
}

// numbered is the i-th job ID of a kind, in an order that is that of the numbers.
func numbered(kind string, i int) asynq.Option { return asynq.TaskID(fmt.Sprintf("%s-%04d", kind, i)) }
