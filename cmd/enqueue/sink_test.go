package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/internal/redistest"
)

// lossy has each script run twice, as a client does whose answer got lost.
func lossy(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if strings.HasPrefix(cmd.Name(), "eval") && next(ctx, cmd) == nil {
		cmd.SetErr(nil)
	}
	return next(ctx, cmd)
}

// A job of which the answer got lost is added, once, also if it is to be unique.
func TestLostAnswer(t *testing.T) {
	_, rdb := redistest.Mini(t)
	rdb.AddHook(redistest.Hook(lossy))
	var refused []error
	sink := opener{config.Default(), io.Discard, func(_ line, err error) { refused = append(refused, err) }, queueSet{}}.queues(rdb)
	for _, unique := range []time.Duration{0, time.Hour} {
		job := jobspec.Job{Type: "mine", Options: jobspec.Options{Unique: unique}}.Fill(jobspec.Options{}, config.Default())
		if err := sink.add(t.Context(), line{Job: job}); err != nil {
			t.Fatal(err)
		}
	}
	if sink.added() != 2 || len(refused) > 0 {
		t.Errorf("added are %d, refused %v; want 2, and none", sink.added(), refused)
	}
	again := jobspec.Job{Type: "mine", Options: jobspec.Options{Unique: time.Hour}}.Fill(jobspec.Options{}, config.Default())
	if err := sink.add(t.Context(), line{Job: again}); err != nil || len(refused) != 1 {
		t.Errorf("another with the same work: refused %v, %v; want that it is", refused, err)
	}
}
