package scheduler

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler/lanes"
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
		hash := "asynq:{default}:t:" + info.ID
		msg, _ := rdb.HGet(ctx, hash, "msg").Bytes()
		msg = withHeader(withRetried(withLastError(msg, "boom"), 3), "c", "d")
		msg = withPayload(withRetried(withLastError(withTimes(msg, 90, 5e9), "again"), 2), []byte("other"))
		if m, err := parseMessage(msg); err != nil || m != (message{info.ID, 7, 2, "again", 90, 5e9, true}) {
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
		_, _ = parseMessage(rapid.SliceOf(rapid.Byte()).Draw(t, "garbage"))
		var msg []byte
		for range rapid.IntRange(0, 10).Draw(t, "fields") {
			msg = protowire.AppendTag(msg, protowire.Number(rapid.IntRange(1, 20).Draw(t, "field")), protowire.BytesType)
			msg = protowire.AppendString(msg, rapid.String().Draw(t, "value"))
		}
		want := message{retried: rapid.IntRange(0, 1<<30).Draw(t, "retried"), lastError: rapid.String().Draw(t, "text")}
		if got, err := parseMessage(withRetried(withLastError(msg, want.lastError), want.retried)); err != nil || got.retried != want.retried || got.lastError != want.lastError {
			t.Fatalf("read %+v, %v; want %+v", got, err, want)
		}
	})
	if _, err := parseMessage([]byte("asynq")); err == nil {
		t.Error("no error for a text")
	}
}

// A task's own priority wins over its rule's, wherever it was given.
func TestPriorityOption(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		client := NewClient(rdb)
		defer client.Close()
		tasks := asynq.NewInspectorFromRedisClient(rdb)
		rule := Rule{Priority: lanes.Low}
		plain := asynq.NewTask("job", nil, asynq.MaxRetry(2))
		for _, test := range []struct {
			name string
			task *asynq.Task
			opts []asynq.Option
			want lanes.Priority
		}{
			{"rule's", plain, nil, lanes.Low},
			{"task's", NewTask("job", nil, Priority(lanes.High), asynq.MaxRetry(2)), nil, lanes.High},
			{"enqueue's", plain, []asynq.Option{Priority(lanes.High)}, lanes.High},
			{"enqueue's over task's", NewTask("job", nil, Priority(lanes.High), asynq.MaxRetry(2)), []asynq.Option{Priority(lanes.Normal)}, lanes.Normal},
			{"scheduled", plain, []asynq.Option{Priority(lanes.High), asynq.ProcessIn(time.Hour)}, lanes.High},
			{"unique", plain, []asynq.Option{Priority(lanes.High), asynq.Unique(time.Hour)}, lanes.High},
			{"unique and scheduled", plain, []asynq.Option{Priority(lanes.High), asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour), asynq.Queue("q")}, lanes.High},
		} {
			info, err := client.Enqueue(test.task, test.opts...)
			if err != nil {
				t.Fatal(err)
			}
			if info, err = tasks.GetTaskInfo(info.Queue, info.ID); err != nil {
				t.Fatal(err)
			}
			if info.MaxRetry != 2 {
				t.Errorf("%s: max retry %d, want the task's own", test.name, info.MaxRetry)
			}
			if got := priorityOf(asynq.NewTaskWithHeaders("job", nil, info.Headers), rule); got != test.want {
				t.Errorf("%s: priority %v of headers %v, want %v", test.name, got, info.Headers, test.want)
			}
		}
		if len(plain.Headers()) != 0 {
			t.Errorf("the task has got headers %v", plain.Headers())
		}
	})
}

// Options may be shared: neither NewTask nor Enqueue writes into them. The race
// detector, and the retries of each job, would tell.
func TestOptionsAreShared(t *testing.T) {
	_, rdb := redistest.Mini(t)
	client := NewClient(rdb)
	shared := make([]asynq.Option, 0, 8)
	shared = append(shared, Priority(lanes.High))
	task := NewTask("job", nil, shared...)
	done := make(chan error, 40)
	for i := range 20 {
		go func() {
			info, err := client.Enqueue(task, asynq.MaxRetry(i))
			if err == nil && info.MaxRetry != i {
				t.Errorf("job %d has %d retries", i, info.MaxRetry)
			}
			done <- err
		}()
		go func() {
			info, err := client.Enqueue(NewTask("job", nil, shared...), append(shared[:1:1], asynq.MaxRetry(i))...)
			if err == nil && info.MaxRetry != i {
				t.Errorf("own job %d has %d retries", i, info.MaxRetry)
			}
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
