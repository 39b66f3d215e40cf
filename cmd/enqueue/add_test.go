package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// lossy sends each pipeline twice, as a client does after a lost reply.
type lossy struct{ redistest.Hook }

func (lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := next(ctx, cmds); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// newTestEnqueuer returns an enqueuer for the default config, and what it prints.
func newTestEnqueuer() (*enqueuer, *bytes.Buffer) {
	var out bytes.Buffer
	return newEnqueuer(config.Default(), jobspec.Options{}, cli.IO{Out: io.Discard, Err: &out}), &out
}

// A job is added once if its reply is lost.
func TestLostAnswer(t *testing.T) {
	_, rdb := redistest.Mini(t)
	rdb.AddHook(lossy{})
	e, out := newTestEnqueuer()
	e.use(rdb, func() error { return nil })
	if err := e.add(t.Context(), given(jobspec.Job{Type: "mine"}), false); err != nil || e.added != 1 {
		t.Errorf("%v, and %d were added: %s", err, e.added, out)
	}
}

// TestMissingRight: each right that the user of docs/operating.md needs is named if it is missing.
func TestMissingRight(t *testing.T) {
	server, users := redistest.RunWithUsers(t, "../../docs/operating.md", "default")
	admin := server.Client()
	defer admin.Close()
	for in, rights := range map[time.Duration][]string{0: {"evalsha", "exists", "hset", "lpush", "sadd"}, time.Hour: {"exists", "hset", "set", "zadd"}} {
		for _, right := range rights {
			for _, acl := range []string{"+" + right, "-" + right} { // Redis has the script the second time
				if err := admin.Do(t.Context(), "acl", "setuser", "enqueue", acl).Err(); err != nil {
					t.Fatal(err)
				}
				e, _ := newTestEnqueuer()
				e.config.Redis, _ = config.ParseRedisURL(users.URLAs("enqueue", server))
				job := jobspec.Job{Type: "a", Payload: json.RawMessage(`"` + acl + `"`), Options: jobspec.Options{In: in, Unique: in}}
				err := e.add(t.Context(), given(job), false)
				if (err == nil) != (acl[0] == '+') || err != nil && !strings.Contains(err.Error(), "the Redis user enqueue may not run "+strings.ToUpper(right)) {
					t.Errorf("%s: %v", acl, err)
				}
			}
			admin.Do(t.Context(), "acl", "setuser", "enqueue", "+"+right)
		}
	}
}

// If the embedded Redis cannot save, the number of jobs is not called 0: earlier ones are saved.
func TestUnsaved(t *testing.T) {
	_, rdb := redistest.Mini(t)
	for _, asJSON := range []bool{false, true} {
		var out bytes.Buffer
		e := newEnqueuer(config.Default(), jobspec.Options{}, cli.IO{Out: &out, Err: io.Discard})
		e.json = asJSON
		e.use(rdb, func() error { return errors.New("disk full") })
		if err := e.add(t.Context(), given(jobspec.Job{Type: "mine"}), false); err == nil || err.Error() != "disk full" {
			t.Errorf("error %v, want that of the save", err)
		}
		if want := map[bool]string{false: "enqueued at most 1 job", true: `"unsaved": true`}[asJSON]; !strings.Contains(out.String(), want) {
			t.Errorf("%s, want %s", &out, want)
		}
	}
}

// Lines go to Redis in batches, but no line waits for the next one.
func TestAddEach_SlowInput(t *testing.T) {
	server, err := miniredis.Run()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	input, lines := io.Pipe()
	done := make(chan int)
	go func() {
		done <- execute(t.Context(), []string{"--redis", "redis://" + server.Addr(), "-"}, cli.IO{In: input, Out: io.Discard, Err: io.Discard})
	}()
	pending := asynqdb.Key("default", asynqdb.Pending)
	for n := 1; n <= 3; n++ {
		if _, err := io.WriteString(lines, "{\"type\":\"mine\"}\n"); err != nil {
			t.Fatal(err)
		}
		for ids, _ := server.List(pending); len(ids) < n; ids, _ = server.List(pending) {
			continue // until it is there, though no more lines come
		}
	}
	lines.Close()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Commands that add jobs at the same time, while no worker runs, add all of them. If they add the
// same job, only one succeeds.
func TestEnqueue_Concurrent(t *testing.T) {
	t.Chdir(t.TempDir())
	const commands, each = 3, 100
	var wg sync.WaitGroup
	var existing atomic.Int64
	for i := range commands {
		wg.Go(func() {
			e, out := newTestEnqueuer()
			jobs := []jobspec.Job{{Type: "mine", ID: "all's"}}
			for range each {
				jobs = append(jobs, jobspec.Job{Type: "mine"})
			}
			if err := e.add(t.Context(), given(jobs...), false); err != nil && err != error(cli.Failed) {
				t.Errorf("command %d: %v", i, err)
			}
			if text := out.String(); !strings.Contains(text, "no worker is running: the jobs wait") || strings.Contains(text, "running worker") {
				t.Errorf("command %d prints: %s", i, text)
			}
			existing.Add(int64(e.existing))
		})
	}
	wg.Wait()
	rdb, end, err := config.Default().Redis.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if n := rdb.LLen(t.Context(), asynqdb.Key("default", asynqdb.Pending)).Val(); n != commands*each+1 {
		t.Errorf("%d jobs wait, want %d", n, commands*each+1)
	}
	if n := existing.Load(); n != commands-1 {
		t.Errorf("%d commands found that the job exists, want %d", n, commands-1)
	}
}

// Jobs that are lost with the folder are unsaved.
func TestEnqueuer_RemovedFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	e, out := newTestEnqueuer()
	l := line{Checked: jobspec.Checked{Job: jobspec.Job{Type: "mine"}}}
	e.check(&l)
	e.batch = []line{l}
	if err := cmp.Or(e.send(t.Context()), os.RemoveAll(".headgate")); err != nil {
		t.Fatal(err)
	}
	err := e.close(context.Canceled)
	if err == nil || !strings.HasPrefix(err.Error(), "the folder ") || !e.unsaved {
		t.Errorf("close gives %v, after: %s", err, out)
	}
}

// Bad lines are reported even if there is no Redis to add jobs to.
func TestAddAll_BadLines(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile(".headgate", nil, 0o600); err != nil { // no folder
		t.Fatal(err)
	}
	add := func(lines string) (code int, stderr string) {
		var out bytes.Buffer
		code = execute(t.Context(), []string{"-"}, cli.IO{In: strings.NewReader(lines), Out: io.Discard, Err: &out})
		return code, out.String()
	}
	if code, said := add("{}\n"); code != 2 || !strings.Contains(said, "line 1: type is missing") || strings.Contains(said, "data") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if code, said := add("{}\n{\"type\":\"mine\"}\n"); code != 1 || !strings.Contains(said, "line 1: type is missing") || !strings.Contains(said, "none can run with its data in") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// An interrupt ends a command that waits for lines.
func TestInterrupt_WithoutInput(t *testing.T) {
	t.Chdir(t.TempDir())
	input, lines := io.Pipe()
	defer input.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		_, _ = io.WriteString(lines, "{\"type\":\"mine\"}\n") // returns when it is read
		interrupt()
	}()
	var stderr bytes.Buffer
	code := execute(ctx, []string{"-"}, cli.IO{In: input, Out: io.Discard, Err: &stderr})
	if code != 1 || !bytes.HasSuffix(stderr.Bytes(), []byte("enqueue: interrupted\n")) {
		t.Errorf("exit code %d: %s; want 1, interrupted", code, &stderr)
	}
}

// An interrupt while jobs are added is reported as one, although asynq returns another error.
func TestInterrupt_WhileAdding(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	_, rdb := redistest.Mini(t)
	rdb.AddHook(interrupted(interrupt))
	e, _ := newTestEnqueuer()
	e.use(rdb, func() error { return nil })
	err := e.add(ctx, given(jobspec.Job{Type: "mine"}), false)
	if !errors.Is(err, context.Canceled) || e.added != 0 {
		t.Errorf("%v, and %d are added; want %v", err, e.added, context.Canceled)
	}
}

// interrupted is a hook of a client that interrupts the command while it adds a job.
type interrupted func()

func (i interrupted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (i interrupted) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return i.fail() }
}

func (i interrupted) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return i.fail() }
}

func (i interrupted) fail() error {
	i()
	return errors.New("UNKNOWN: redis eval error: context canceled")
}
