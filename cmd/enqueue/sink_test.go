package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
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

// A job is added once if its reply is lost, also with --unique.
func TestLostAnswer(t *testing.T) {
	_, rdb := redistest.Mini(t)
	rdb.AddHook(lossy{})
	var refused []error
	sink := &sink{config: config.Default(), stderr: io.Discard, refused: func(_ line, err error) { refused = append(refused, err) }}
	sink.use(rdb, rdb.Close)
	for _, unique := range []time.Duration{0, time.Hour} {
		job := jobspec.Job{Type: "mine", Options: jobspec.Options{Unique: unique}}.Fill(jobspec.Options{}, config.Default())
		if err := cmp.Or(sink.add(t.Context(), line{Job: job}), sink.flush(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if sink.added != 2 || len(refused) > 0 {
		t.Errorf("added are %d, refused %v; want 2, and none", sink.added, refused)
	}
	again := jobspec.Job{Type: "mine", Options: jobspec.Options{Unique: time.Hour}}.Fill(jobspec.Options{}, config.Default())
	if err := cmp.Or(sink.add(t.Context(), line{Job: again}), sink.flush(t.Context())); err != nil || len(refused) != 1 {
		t.Errorf("another with the same work: refused %v, %v; want that it is", refused, err)
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

// Commands that add jobs at the same time, while no worker runs, add all of them. If they add the same
// job, only one succeeds.
func TestEnqueue_Concurrent(t *testing.T) {
	t.Chdir(t.TempDir())
	const commands, each = 3, 100
	var wg sync.WaitGroup
	refused, said := make([]int, commands), make([]bytes.Buffer, commands)
	for i := range commands {
		sink := &sink{config: config.Default(), stderr: &said[i], refused: func(line, error) { refused[i]++ }}
		wg.Go(func() {
			jobs := []line{{Job: jobspec.Job{Type: "mine", ID: "all's"}.Fill(jobspec.Options{}, config.Default()), ownID: true}}
			for range each {
				jobs = append(jobs, line{Job: jobspec.Job{Type: "mine"}.Fill(jobspec.Options{}, config.Default())})
			}
			if err := sink.close(fill(t.Context(), sink, slices.Values(jobs), cli.NewBar(io.Discard, 0, ""))); err != nil {
				t.Errorf("command %d: %v", i, err)
			}
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
	told := 0
	for i, n := range refused {
		told += n
		if text := said[i].String(); !strings.Contains(text, "no worker is running: the jobs wait") || strings.Contains(text, "running worker") {
			t.Errorf("command %d says: %s", i, text)
		}
	}
	if told != commands-1 {
		t.Errorf("%d were told that it is there, want %d", told, commands-1)
	}
}

// An interrupt does not hide that jobs are lost. They do not count as added.
func TestSink_RemovedFolder_SaysThatJobsAreLost(t *testing.T) {
	t.Chdir(t.TempDir())
	var stderr bytes.Buffer
	sink := &sink{config: config.Default(), stderr: &stderr}
	job := jobspec.Job{Type: "mine"}.Fill(jobspec.Options{}, config.Default())
	if err := cmp.Or(sink.add(t.Context(), line{Job: job}), sink.flush(t.Context()), os.RemoveAll(".headgate")); err != nil {
		t.Fatal(err)
	}
	err := sink.close(context.Canceled)
	if err == nil || !strings.HasPrefix(err.Error(), "interrupted\nthe folder ") || sink.added != 0 || stderr.Len() > 0 {
		t.Errorf("close gives %v, after: %s", err, &stderr)
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
	if code, said := add("{}\n{\"type\":\"mine\"}\n"); code != 1 || !strings.Contains(said, "line 1: type is missing") || !strings.Contains(said, "none can keep its data in") {
		t.Errorf("exit code %d: %s", code, said)
	}
}
