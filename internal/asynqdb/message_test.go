package asynqdb_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// What is written into a message is what asynq reads out of it.
func TestMessagesAreAsynqs(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		info, err := asynq.NewClientFromRedisClient(rdb).Enqueue(
			asynq.NewTaskWithHeaders("job", []byte("payload"), map[string]string{"a": "b"}), asynq.MaxRetry(7), asynq.Timeout(time.Minute),
			asynq.Deadline(time.Unix(4e9, 0)), asynq.Unique(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		hash := asynqdb.Hash("default", info.ID)
		msg, _ := rdb.HGet(ctx, hash, "msg").Bytes()
		msg = asynqdb.WithHeaders([]any{asynqdb.WithRetried(asynqdb.WithLastError(msg, "boom"), 3)}, map[string]string{"c": "d"})[0].([]byte)
		msg = asynqdb.WithPayload(asynqdb.WithRetried(asynqdb.WithLastError(asynqdb.WithTimes(msg, 90, 5e9), "again"), 2), []byte("other"))
		want := asynqdb.Message{
			Task: asynq.NewTaskWithHeaders("job", []byte("other"), map[string]string{"a": "b", "c": "d"}), ID: info.ID,
			MaxRetry: 7, Retried: 2, LastError: "again", Timeout: 90, Deadline: 5e9,
		}
		if m, err := asynqdb.ParseMessage(msg); err != nil || !reflect.DeepEqual(m, want) {
			t.Errorf("read back: %+v, %v", m, err)
		}
		rdb.HSet(ctx, hash, "msg", msg)
		got, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", info.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.LastErr != "again" || got.Retried != 2 || got.MaxRetry != 7 || got.Timeout != 90*time.Second || got.Deadline.Unix() != 5e9 || string(got.Payload) != "other" {
			t.Errorf("asynq reads %+v", got)
		}
		if got.Headers["a"] != "b" || got.Headers["c"] != "d" || len(got.Headers) != 2 {
			t.Errorf("asynq reads headers %v", got.Headers)
		}
	})
}

// Whatever else a message holds, the last of a field counts; and what is not a
// message is an error, and never a panic.
func TestParseMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, _ = asynqdb.ParseMessage(rapid.SliceOf(rapid.Byte()).Draw(t, "garbage"))
		var msg []byte
		for range rapid.IntRange(0, 10).Draw(t, "fields") {
			msg = protowire.AppendTag(msg, protowire.Number(rapid.IntRange(1, 14).Draw(t, "field")), protowire.BytesType)
			msg = protowire.AppendString(msg, rapid.String().Draw(t, "value"))
		}
		want := asynqdb.Message{Retried: rapid.IntRange(0, 1<<30).Draw(t, "retried"), LastError: rapid.String().Draw(t, "text")}
		if got, err := asynqdb.ParseMessage(asynqdb.WithRetried(asynqdb.WithLastError(msg, want.LastError), want.Retried)); err != nil || got.Retried != want.Retried || got.LastError != want.LastError {
			t.Fatalf("read %+v, %v; want %+v", got, err, want)
		}
	})
	if _, err := asynqdb.ParseMessage([]byte("asynq")); err == nil {
		t.Error("no error for a text")
	}
}

// Scripts of another asynq, with other keys and arguments, are passed on, or have a job's
// message where it is looked for. TestLayout has this asynq's.
func TestRecognize_OtherScripts(t *testing.T) {
	names := []string{asynqdb.Pending, asynqdb.Paused, asynqdb.Active, asynqdb.Lease, asynqdb.Retry, asynqdb.Archived, asynqdb.Completed, "t:id"}
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.SampledFrom(names), 0, 10).Draw(t, "keys")
		for i, name := range keys {
			keys[i] = asynqdb.Key("default", name)
		}
		args := rapid.SliceOfN(rapid.SampledFrom([]any{"id", []byte("message"), int64(1), 1, true, nil}), 0, 8).Draw(t, "args")
		c := asynqdb.Recognize(keys, args)
		if writes := c.Script > asynqdb.ScriptDequeue; writes != (c.Msg != nil) || writes && c.ID != "id" {
			t.Fatalf("%+v", c)
		}
	})
}

// TestErrNotActive_IsNoOutage: a call that comes too late for its job says nothing about Redis.
func TestErrNotActive_IsNoOutage(t *testing.T) {
	if problem := redishealth.ProblemOf(asynqdb.ErrNotActive); problem != redishealth.None {
		t.Errorf("ErrNotActive counts as %q", problem.Description())
	}
}
