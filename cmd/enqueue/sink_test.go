package main

import (
	"cmp"
	"context"
	"io"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/internal/redistest"
)

// lossy has all that is sent together sent twice, as a client does whose answer got lost.
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

// A job of which the answer got lost is added, once, also if it is to be unique.
func TestLostAnswer(t *testing.T) {
	_, rdb := redistest.Mini(t)
	rdb.AddHook(lossy{})
	var refused []error
	sink := opener{config.Default(), io.Discard, func(_ line, err error) { refused = append(refused, err) }, queueSet{}}.queues(rdb)
	for _, unique := range []time.Duration{0, time.Hour} {
		job := jobspec.Job{Type: "mine", Options: jobspec.Options{Unique: unique}}.Fill(jobspec.Options{}, config.Default())
		if err := cmp.Or(sink.add(t.Context(), line{Job: job}), sink.flush(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if sink.added() != 2 || len(refused) > 0 {
		t.Errorf("added are %d, refused %v; want 2, and none", sink.added(), refused)
	}
	again := jobspec.Job{Type: "mine", Options: jobspec.Options{Unique: time.Hour}}.Fill(jobspec.Options{}, config.Default())
	if err := cmp.Or(sink.add(t.Context(), line{Job: again}), sink.flush(t.Context())); err != nil || len(refused) != 1 {
		t.Errorf("another with the same work: refused %v, %v; want that it is", refused, err)
	}
}

// Lines go to Redis together, but none waits for lines that have not come.
func TestLinesThatComeSlowly(t *testing.T) {
	server, err := miniredis.Run()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	input, lines := io.Pipe()
	done := make(chan int)
	go func() {
		done <- run(t.Context(), []string{"--redis", "redis://" + server.Addr(), "-"}, cli.IO{In: input, Out: io.Discard, Err: io.Discard})
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
