//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/shard"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// chaos is a redis-server behind a proxy, deployments of two workers each, and the API that they call.
type chaos struct {
	t           *testing.T
	seed        uint64
	random      *rand.Rand
	server      *redistest.Server
	proxy       *proxy
	url         string // of Redis through the proxy, as the user worker
	rdb         *redis.Client
	api         *httptest.Server
	deployments []deployment
	workers     map[string]*workerProcess
	logs        []string // paths of the workers' logs

	queueOf map[string]string // job ID to queue
	ended   map[string]bool   // by job ID
	faults  []fault
	stops   map[string][]time.Time // when a worker continued after SIGSTOP

	mu    sync.Mutex
	calls []call
}

// deployment is a scope with its queues, limits and config file.
type deployment struct {
	name    string
	queues  []string
	shards  int // of the queue with the deployment's name, by tenant; 0 for queues without shards
	limits  []throttle.Limit
	keyed   map[string]bool // limits that count each tenant separately
	tenants int
	config  string // path of the file
}

// call is what the API has seen of a job.
type call struct {
	deployment, id, tenant, worker string
	at, end                        time.Time
}

type workerProcess struct {
	deployment, number int
	cmd                *exec.Cmd
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	c := &chaos{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // it has to repeat
		workers: map[string]*workerProcess{}, queueOf: map[string]string{}, ended: map[string]bool{}, stops: map[string][]time.Time{},
	}
	server, users := redistest.RunWithUsers(t, "../../docs/operating.md", "*", "--appendonly", "yes", "--appendfsync", "everysec")
	c.server, c.rdb = server, server.Client()
	t.Cleanup(func() { _ = c.rdb.Close() })
	c.proxy = startProxy(t, server.Addr())
	c.url = "redis://worker:" + users["worker"] + "@" + c.proxy.listener.Addr().String()
	c.api = httptest.NewServer(http.HandlerFunc(c.answer))
	t.Cleanup(c.api.Close)
	c.deployments = []deployment{
		{name: "even", queues: []string{"even-a", "even-b"}, tenants: 3, keyed: map[string]bool{"host": true}, limits: []throttle.Limit{
			{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(50), Capacity: 5},
			{Name: "api", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(120), Capacity: 20},
		}},
		{name: "strict", queues: []string{"strict"}, tenants: 4, keyed: map[string]bool{"tenant": true}, limits: []throttle.Limit{
			{Name: "tenant", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(30)},
			{Name: "api", Kind: throttle.FixedWindow, Rate: throttle.PerSecond(100)},
		}},
		{name: "slots", queues: []string{"slots-a", "slots-b"}, tenants: 1, limits: []throttle.Limit{
			{Name: "slots", Kind: throttle.Concurrency, Capacity: 8, Lease: 5 * time.Second},
			{Name: "api", Kind: throttle.SlidingWindow, Rate: throttle.PerSecond(120)},
		}},
		{name: "sharded", shards: 4, tenants: 6, keyed: map[string]bool{"tenant": true}, limits: []throttle.Limit{
			{Name: "tenant", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(30)},
			{Name: "api", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(120), Capacity: 20}, // divided
		}},
	}
	for i := range c.deployments {
		c.deployments[i].write(t, c.url)
	}
	return c
}

// write makes the config file.
func (d *deployment) write(t *testing.T, url string) {
	t.Helper()
	var limits, needs strings.Builder
	for _, l := range d.limits {
		fmt.Fprintf(&limits, "  %s: {kind: %s", l.Name, l.Kind)
		if l.Rate.N > 0 {
			fmt.Fprintf(&limits, ", rate: %s", l.Rate)
		}
		if l.Capacity > 0 {
			fmt.Fprintf(&limits, ", capacity: %d", l.Capacity)
		}
		if l.Lease > 0 {
			fmt.Fprintf(&limits, ", lease: %s", l.Lease)
		}
		limits.WriteString("}\n")
		key := ""
		if d.keyed[l.Name] {
			key = `, key: payload.headers.Tenant`
		}
		fmt.Fprintf(&needs, "      - {limit: %s%s}\n", l.Name, key)
	}
	queues := "{" + strings.Join(d.queues, ": 1, ") + ": 1}"
	if d.shards > 0 {
		queues = fmt.Sprintf("{%s: {shards: %d, shard_by: payload.headers.Tenant, divide: [api]}}", d.name, d.shards)
		for _, s := range shard.All(d.name, d.shards) {
			d.queues = append(d.queues, s.Name())
		}
	}
	text := fmt.Sprintf("redis: %s\nscope: %s\nconcurrency: 12\nqueues: %s\nshutdown_timeout: 2s\nlimits:\n%stasks:\n  http:request:\n    retry: {base: 500ms, cap: 2s}\n    limits:\n%shttp: {allow_private: [127.0.0.1], secrets: ['env:WORKER']}\n",
		url, d.name, queues, &limits, &needs)
	d.config = filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// scopes are the limiter's scopes of the deployment.
func (d *deployment) scopes() []string {
	if d.shards > 0 {
		return d.queues
	}
	return []string{d.name}
}

// answer is the API: it notes each call, and takes 5 to 40 ms.
func (c *chaos) answer(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	seen := call{deployment: parts[1], id: parts[2], tenant: r.Header.Get("Tenant"), worker: r.Header.Get("Worker"), at: time.Now()}
	select {
	case <-time.After(5*time.Millisecond + rand.N(35*time.Millisecond)): //nolint:gosec // no secret
	case <-r.Context().Done():
	}
	seen.end = time.Now()
	c.mu.Lock()
	c.calls = append(c.calls, seen)
	c.mu.Unlock()
	_, _ = io.WriteString(w, "done")
}

func (c *chaos) callCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// isStale tells whether the worker of a call was stopped between the start of its handler and the
// call, so the time of the call is not that of the job's start.
func (c *chaos) isStale(seen call) bool {
	return slices.ContainsFunc(c.stops[seen.worker], func(resumed time.Time) bool {
		return !seen.at.Before(resumed) && seen.at.Before(resumed.Add(500*time.Millisecond))
	})
}

// expectedRun is about how long the jobs take at the rates of the limits.
func (c *chaos) expectedRun(jobs int) time.Duration {
	return time.Duration(jobs) * time.Second / 280
}

// wait passes time while workers work.
func (c *chaos) wait(d time.Duration) { time.Sleep(d) }

// startWorker starts one of a deployment's worker processes.
func (c *chaos) startWorker(deployment, number int) {
	c.t.Helper()
	name := fmt.Sprintf("worker-%s-%d", c.deployments[deployment].name, number)
	cmd := exec.Command("worker", "run", "--config", c.deployments[deployment].config)
	cmd.Env = append(os.Environ(), "WORKER="+name)
	log, err := os.Create(filepath.Join(c.t.TempDir(), name+".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	c.logs = append(c.logs, log.Name())
	cmd.Stderr, cmd.Stdout = log, log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.workers[name] = &workerProcess{deployment, number, cmd}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if c.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			c.t.Logf("%s said:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
}

// names are the workers' names in a fixed order.
func (c *chaos) names() []string { return slices.Sorted(maps.Keys(c.workers)) }

// proxy forwards connections to Redis, and can cut, delay and half-close them.
type proxy struct {
	listener net.Listener
	delay    atomic.Int64 // of each piece of an answer, in nanoseconds

	mu    sync.Mutex
	conns map[*net.TCPConn]bool // from workers
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, conns: map[*net.TCPConn]bool{}}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.forward(conn.(*net.TCPConn), target)
		}
	}()
	return p
}

func (p *proxy) forward(client *net.TCPConn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.conns[client] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, client)
		p.mu.Unlock()
	}()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(p.delay.Load()))
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// each calls f with every connection of a worker.
func (p *proxy) each(f func(*net.TCPConn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		f(conn)
	}
}
