package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/scheduler"
)

// archive is a Redis with archived jobs.
func archive(t *testing.T, ids ...string) (*cli.Globals, *asynq.Inspector) {
	t.Helper()
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	for _, id := range ids {
		_, err := scheduler.NewClient(rdb).Enqueue(asynq.NewTask("mine", nil, asynq.TaskID(id)))
		if err == nil {
			err = inspector.ArchiveTask("default", id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return &cli.Globals{Redis: "redis://" + m.Addr()}, inspector
}

// A job that somebody has saved from the archive, while others are deleted, is left
// alone.
func TestArchivedMeanwhileSaved(t *testing.T) {
	g, inspector := archive(t, "one", "two")
	var did []string
	var out bytes.Buffer
	err := selection{All: true}.each(t.Context(), g, cli.IO{Out: &out, Err: io.Discard}, "deleted", func(_ *inspect.Queues, _ context.Context, job *asynq.TaskInfo) error {
		did = append(did, job.ID)
		for _, id := range []string{"one", "two"} {
			if id != job.ID {
				return inspector.RunTask("default", id)
			}
		}
		return nil
	})
	if err != nil || len(did) != 1 || out.String() != "deleted 1 job\n" {
		t.Errorf("%q are deleted, %v: %s; want the one that is archived still", did, err, &out)
	}
}

func TestArchivedOlderThanTheFuture(t *testing.T) {
	g, inspector := archive(t, "one")
	var stderr bytes.Buffer
	code := run(t.Context(), []string{"archived", "delete", "--older=-1h", "--redis", g.Redis}, cli.IO{Out: io.Discard, Err: &stderr})
	if code != 2 || !strings.Contains(stderr.String(), "--older -1h0m0s: want a time up to now, such as 24h") {
		t.Errorf("exit code %d: %s; want 2, and what would be right", code, &stderr)
	}
	if _, err := inspector.GetTaskInfo("default", "one"); err != nil {
		t.Errorf("the job: %v", err)
	}
}

// A job that somebody archives is not old, however long ago it failed, or if it never
// did.
func TestArchivedByHandIsNew(t *testing.T) {
	g, inspector := archive(t, "one")
	var out bytes.Buffer
	code := run(t.Context(), []string{"archived", "delete", "--older=1h", "--redis", g.Redis}, cli.IO{Out: &out, Err: &out})
	if _, err := inspector.GetTaskInfo("default", "one"); err != nil || code != 0 {
		t.Errorf("exit code %d: %s; the job: %v", code, &out, err)
	}
	out.Reset()
	code = run(t.Context(), []string{"archived", "list", "--redis", g.Redis}, cli.IO{Out: &out, Err: &out})
	if code != 0 || !strings.Contains(out.String(), "one") || strings.Contains(out.String(), "0001-01-01") {
		t.Errorf("exit code %d: %s; want the job, and when it was archived", code, &out)
	}
	out.Reset()
	code = run(t.Context(), []string{"results", "--failed", "--since=1h", "--json", "--redis", g.Redis}, cli.IO{Out: &out, Err: &out})
	if code != 0 || !strings.Contains(out.String(), `"one"`) {
		t.Errorf("exit code %d: %s; want the job among those that ended within the hour", code, &out)
	}
}
