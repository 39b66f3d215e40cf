//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/throttletest"
)

var (
	chaosSeed   = flag.Uint64("chaos-seed", 1, "seed of TestChaos")
	chaosJobs   = flag.Int("chaos-jobs", 800, "how many jobs TestChaos enqueues")
	chaosFaults = flag.Int("chaos-faults", 8, "how many faults TestChaos injects")
)

// callDelay is the longest time between the start of a job's handler and its call at the API, on a busy
// machine. isStale leaves out the calls of processes that the test stopped.
const callDelay = 300 * time.Millisecond

// maxStartDelay is the longest time between the permits of a limit's jobs and the start of their
// handlers.
func (c *chaos) maxStartDelay(l throttle.Limit) time.Duration {
	if startsText(l) != "" && !c.logged("jobs of windows start late") {
		return waitdb.MaxWindowAge
	}
	return 100 * time.Millisecond
}

// logged tells whether a worker has logged a text.
func (c *chaos) logged(text string) bool {
	return slices.ContainsFunc(c.logs, func(path string) bool {
		log, err := os.ReadFile(path)
		return err != nil || strings.Contains(string(log), text)
	})
}

// TestChaos runs thousands of jobs in worker processes on a real redis-server with the documented
// users, injects faults, and judges by the calls that an HTTP API has seen: each job ends, no limit
// is exceeded, a job runs twice only because of a fault, and nothing is left behind.
func TestChaos(t *testing.T) {
	t.Parallel()
	c := newChaos(t, *chaosSeed)
	c.enqueue(*chaosJobs)
	for i := range c.deployments {
		c.startWorker(i, 0)
		c.startWorker(i, 1)
	}
	proctest.Until(t, "call of all workers", func() (bool, any) { n := c.callCount(); return n >= 30, n })
	pause := c.expectedRun(*chaosJobs) / time.Duration(*chaosFaults+1)
	for range *chaosFaults {
		c.wait(pause/2 + rand.N(pause)) //nolint:gosec // the time of a fault is no secret
		c.inject()
	}
	c.settle()
	c.judge()
}

// enqueue adds jobs of every deployment, in random order.
func (c *chaos) enqueue(jobs int) {
	c.t.Helper()
	client := asynq.NewClientFromRedisClient(c.rdb)
	for i := range jobs {
		d := &c.deployments[c.random.IntN(len(c.deployments))]
		id := fmt.Sprintf("j%d", i)
		tenant := fmt.Sprintf("t%d", c.random.IntN(d.tenants))
		payload := fmt.Sprintf(`{"url":"%s/%s/%s","headers":{"Worker":"${env:WORKER}","Tenant":"%s"}}`, c.api.URL, d.name, id, tenant)
		queue := d.queues[c.random.IntN(len(d.queues))]
		if d.shards > 0 {
			queue = shard.ForKey(d.name, tenant, d.shards).Name()
		}
		_, err := client.EnqueueContext(c.t.Context(), asynq.NewTask("http:request", []byte(payload)),
			asynq.Queue(queue), asynq.TaskID(id), asynq.Retention(time.Hour), asynq.MaxRetry(1000), asynq.Timeout(30*time.Second))
		if err != nil {
			c.t.Fatal(err)
		}
		c.queueOf[id] = queue
	}
}

// settle waits until every job has ended. Faults are over, and workers run.
func (c *chaos) settle() {
	c.t.Helper()
	inspector := asynq.NewInspectorFromRedisClient(c.rdb)
	proctest.Until(c.t, "end of all jobs", func() (bool, any) {
		left := c.unfinished(inspector)
		return len(left) == 0, fmt.Sprintf("%d have not ended: %s", len(left), strings.Join(left[:min(10, len(left))], ", "))
	})
}

// unfinished lists the jobs that have not ended, with their state.
func (c *chaos) unfinished(inspector *asynq.Inspector) (left []string) {
	for id, queue := range c.queueOf {
		if c.ended[id] {
			continue
		}
		info, err := inspector.GetTaskInfo(queue, id)
		switch {
		case err == nil && info.State == asynq.TaskStateCompleted:
			c.ended[id] = true
			continue
		case err != nil:
			left = append(left, fmt.Sprintf("%s: %v", id, err))
		default:
			left = append(left, fmt.Sprintf("%s in %s is %s: %s", id, queue, info.State, info.LastErr))
		}
	}
	slices.Sort(left)
	return left
}

// judge compares what the API has seen with the limits and with the faults.
func (c *chaos) judge() {
	c.t.Helper()
	c.judgeLimits()
	repeated := c.judgeRepeats()
	c.judgeRest()
	c.t.Logf("seed %d: %d jobs, %d calls, %d faults %s, %d jobs ran more than once", c.seed, len(c.queueOf), c.callCount(), len(c.faults), c.faultCounts(), repeated)
}

// judgeLimits gives each limit's calls to the oracle.
func (c *chaos) judgeLimits() {
	c.t.Helper()
	for _, d := range c.deployments {
		for _, limit := range d.limits {
			histories := map[string][]throttletest.Admission{}
			for _, call := range c.calls {
				if call.deployment != d.name || c.isStale(call) {
					continue
				}
				key := ""
				if d.keyed[limit.Name] {
					key = call.tenant
				}
				histories[key] = append(histories[key], throttletest.Admission{At: call.at.UnixMicro(), Cost: 1, Until: call.end.UnixMicro()})
			}
			for key, history := range histories {
				if limit.Kind == throttle.Concurrency {
					// The API sees a call end a little before or after its worker does.
					for i := range history {
						history[i].Until -= (5 * time.Millisecond).Microseconds()
					}
				}
				if err := throttletest.CheckStarts(limit, history, c.maxStartDelay(limit)+callDelay); err != nil {
					c.t.Errorf("%s, key %q: %v", d.name, key, err)
				}
			}
		}
	}
}

// judgeRepeats counts jobs that the API saw more than once. Each repeat needs a fault while or after
// the earlier call ran.
func (c *chaos) judgeRepeats() (repeated int) {
	c.t.Helper()
	last := map[string]call{}
	seen := map[string]bool{}
	for _, call := range c.calls {
		if earlier, ok := last[call.id]; ok {
			seen[call.id] = true
			if !slices.ContainsFunc(c.faults, func(f fault) bool {
				return f.end.After(earlier.at.Add(-time.Second)) && f.at.Before(call.at)
			}) {
				c.t.Errorf("job %s ran at %s in %s and at %s in %s without a fault between", call.id, earlier.at.Format(time.StampMilli), earlier.worker, call.at.Format(time.StampMilli), call.worker)
				for _, f := range c.faults {
					c.t.Logf("%s from %s to %s", f.kind, f.at.Format(time.StampMilli), f.end.Format(time.StampMilli))
				}
			}
		}
		last[call.id] = call
	}
	for id := range c.queueOf {
		if _, called := last[id]; !called {
			c.t.Errorf("job %s has ended without a call", id)
		}
	}
	return len(seen)
}

// judgeRest waits until Redis has no waiting job, lane, lease or reservation any more.
func (c *chaos) judgeRest() {
	c.t.Helper()
	proctest.Until(c.t, "end of what is left in Redis", func() (bool, any) { left := c.leftovers(); return len(left) == 0, left })
}

// leftovers are keys that have something although no job waits or runs.
func (c *chaos) leftovers() (left []string) {
	ctx := context.Background()
	for _, d := range c.deployments {
		for _, queue := range d.queues {
			for _, name := range []string{asynqdb.Active, asynqdb.Lease, asynqdb.Pending, asynqdb.Retry, asynqdb.Scheduled, asynqdb.Archived} {
				if key := asynqdb.Key(queue, name); c.rdb.Exists(ctx, key).Val() > 0 {
					left = append(left, key)
				}
			}
		}
		for _, scope := range d.scopes() {
			prefix := "hg:{" + scope + "}:"
			for _, name := range []string{"jobs", "lanes"} {
				if n := c.rdb.Exists(ctx, prefix+name).Val(); n > 0 {
					left = append(left, prefix+name)
				}
			}
			for _, pattern := range []string{"lane:*", "called:*", "granted:*", "m:concurrency:*"} {
				left = append(left, c.rdb.Keys(ctx, prefix+pattern).Val()...)
			}
			for meter, reserved := range c.rdb.HGetAll(ctx, prefix+"meters").Val() {
				if n, _, _ := strings.Cut(reserved, "\n"); n != "" && n != "0" {
					left = append(left, fmt.Sprintf("%s permits reserved of %s", n, meter))
				}
			}
		}
	}
	return left
}
