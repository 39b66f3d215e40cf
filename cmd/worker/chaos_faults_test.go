//go:build linux

package main

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/proctest"
)

// fault is something that was done to the system, from at until end.
type fault struct {
	kind    string
	at, end time.Time
}

// inject does one random fault and returns when it is over.
func (c *chaos) inject() {
	c.t.Helper()
	kinds := slices.Sorted(maps.Keys(faultKinds))
	kind := kinds[c.random.IntN(len(kinds))]
	f := fault{kind: kind, at: time.Now()}
	faultKinds[kind](c)
	f.end = time.Now()
	c.faults = append(c.faults, f)
}

func (c *chaos) faultCounts() string {
	counts := map[string]int{}
	for _, f := range c.faults {
		counts[f.kind]++
	}
	var texts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%s %d", kind, counts[kind]))
	}
	return "(" + strings.Join(texts, ", ") + ")"
}

// faultKinds are the faults by name. Each leaves a system that can go on by itself.
var faultKinds = map[string]func(*chaos){
	"kill -9":        func(c *chaos) { c.kill(c.randomWorker()) },
	"kill -9 leader": func(c *chaos) { c.kill(c.leader()) },
	"SIGSTOP":        func(c *chaos) { c.stop(1200*time.Millisecond, c.randomWorker()) },
	"SIGSTOP leader": func(c *chaos) { c.stop(1200*time.Millisecond, c.leader()) },
	"stall": func(c *chaos) { // as a crowded machine does, see internal/testutil/stall
		all := append(c.names(), redisName)
		c.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		c.stop(2200*time.Millisecond, all[:len(all)/3]...)
	},
	"Redis stands still": func(c *chaos) { c.stop(15*time.Second, redisName) }, // longer than a client waits for a reply
	"SIGTERM": func(c *chaos) {
		w := c.workers[c.randomWorker()]
		c.try(w.cmd.Process.Signal(syscall.SIGTERM))
		_ = w.cmd.Wait()
		c.startWorker(w.deployment, w.number)
	},
	"Redis restart": (*chaos).restartRedis,
	"SCRIPT FLUSH":  func(c *chaos) { c.try(c.rdb.ScriptFlush(c.t.Context()).Err()) },
	"CLIENT KILL":   func(c *chaos) { _ = c.rdb.Do(c.t.Context(), "client", "kill", "user", "worker").Err() },
	"CLIENT PAUSE": func(c *chaos) {
		c.try(c.rdb.ClientPause(c.t.Context(), 700*time.Millisecond).Err())
		c.wait(800 * time.Millisecond)
	},
	"cut": func(c *chaos) { c.proxy.each(func(conn *net.TCPConn) { _ = conn.SetLinger(0); _ = conn.Close() }) },
	"half-close": func(c *chaos) {
		c.proxy.each(func(conn *net.TCPConn) { _ = conn.CloseWrite() })
	},
	"delay": func(c *chaos) {
		c.proxy.delay.Store(int64(120 * time.Millisecond))
		c.wait(1200 * time.Millisecond)
		c.proxy.delay.Store(0)
	},
	"memory full": func(c *chaos) {
		c.try(c.rdb.ConfigSet(c.t.Context(), "maxmemory", "1mb").Err())
		c.wait(700 * time.Millisecond)
		c.try(c.rdb.ConfigSet(c.t.Context(), "maxmemory", "0").Err())
	},
	"lease lost": func(c *chaos) {
		for _, d := range c.deployments {
			for _, queue := range d.queues {
				c.try(c.rdb.ZPopMin(c.t.Context(), asynqdb.Key(queue, asynqdb.Lease)).Err())
			}
		}
	},
}

// try fails the test if a fault cannot be injected.
func (c *chaos) try(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *chaos) randomWorker() string {
	names := c.names()
	return names[c.random.IntN(len(names))]
}

// leader is the worker that leads a random scope, or another worker of the scope if none does.
func (c *chaos) leader() string {
	d := c.deployments[c.random.IntN(len(c.deployments))]
	scopes := d.scopes()
	prefix := "hg:{" + scopes[c.random.IntN(len(scopes))] + "}:"
	process := c.rdb.Get(c.t.Context(), prefix+"leader").Val()
	about := c.rdb.Get(c.t.Context(), prefix+"worker:"+process).Val()
	for name, w := range c.workers {
		if strings.Contains(about, fmt.Sprintf(`"pid":%d`, w.cmd.Process.Pid)) {
			return name
		}
	}
	return "worker-" + d.name + "-0"
}

// kill ends a worker at once, and starts it again.
func (c *chaos) kill(name string) {
	w := c.workers[name]
	c.try(w.cmd.Process.Kill())
	_ = w.cmd.Wait()
	c.wait(time.Duration(c.random.IntN(1000)) * time.Millisecond)
	c.startWorker(w.deployment, w.number)
}

// restartRedis kills Redis and starts it again. If the disk is busy, Redis loses its last writes with
// appendfsync everysec, and gives jobs out again that workers have. Such a worker learns that when it
// extends the leases, so its jobs may start until then.
func (c *chaos) restartRedis() {
	const twoHeartbeats = 10 * time.Second
	wrote, err := c.rdb.Incr(c.t.Context(), "witness").Result()
	c.try(err)
	killed := time.Now()
	c.try(c.server.Stop())
	c.wait(time.Duration(c.random.IntN(1500)) * time.Millisecond)
	c.try(c.server.Restart())
	if read, _ := c.rdb.Get(c.t.Context(), "witness").Int64(); read != wrote {
		c.faults = append(c.faults, fault{"Redis lost writes", killed, time.Now().Add(twoHeartbeats)})
	}
}

// redisName is the name of the redis-server among those of the workers.
const redisName = "redis-server"

// stop suspends processes for 0.3 s and up to more.
func (c *chaos) stop(more time.Duration, names ...string) {
	var pids []int
	for _, name := range names {
		if name == redisName {
			pids = append(pids, c.server.Pid())
		} else {
			pids = append(pids, c.workers[name].cmd.Process.Pid)
		}
	}
	thaw := proctest.Freeze(c.t, pids...)
	c.wait(300*time.Millisecond + time.Duration(c.random.Int64N(int64(more))))
	resumed := time.Now()
	thaw()
	for _, name := range names {
		c.stops[name] = append(c.stops[name], resumed)
	}
}
