package asynqdb_test

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// lockOf is the key of the lock of asynq's Unique.
func lockOf(queue, typename string, payload []byte) string {
	lock := asynqdb.Key(queue, "unique:") + typename + ":"
	if len(payload) > 0 {
		lock += fmt.Sprintf("%x", md5.Sum(payload))
	}
	return lock
}

// listener is the Redis client of an asynq server, which records which scripts are recognised,
// and has a job that is given up say something else.
type listener struct {
	redis.UniversalClient
	received chan asynqdb.Call
	fills    chan string
}

func (l listener) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return l.receive(keys, args, func() *redis.Cmd { return l.UniversalClient.EvalSha(ctx, sha1, keys, args...) })
}

func (l listener) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return l.receive(keys, args, func() *redis.Cmd { return l.UniversalClient.Eval(ctx, script, keys, args...) })
}

// receive sends a script once Redis has run it.
func (l listener) receive(keys []string, args []any, run func() *redis.Cmd) *redis.Cmd {
	c := asynqdb.Recognize(keys, args)
	if c.Script == asynqdb.ScriptArchive {
		args[1] = asynqdb.WithLastError(c.Msg, "given up")
	}
	cmd := run()
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return cmd
	}
	if c.Script > asynqdb.ScriptDequeue {
		l.received <- *c
	}
	if queue := c.Queue; c.MayAddPending && c.Script != asynqdb.ScriptDequeue && cmd.Val() != int64(0) {
		l.fills <- queue
	}
	return cmd
}

// TestLayout: asynq's own client and server keep jobs where this package looks, in
// the form that it reads, and their scripts are recognised. What asynq keeps beside that would
// be new: this test fails for it, so that a developer looks.
func TestLayout(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		began := time.Now()
		l := listener{rdb, make(chan asynqdb.Call, 100), make(chan string, 100)}
		client, tasks := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
		enqueue := func(id string, opts ...asynq.Option) {
			t.Helper()
			if _, err := client.Enqueue(asynq.NewTask("type", []byte("of "+id)), append(opts, asynq.TaskID(id))...); err != nil {
				t.Fatal(err)
			}
		}
		enqueue("kept", asynq.Retention(time.Hour))
		enqueue("again", asynq.Retention(time.Hour))
		enqueue("failed")
		enqueue("given-up", asynq.MaxRetry(0))
		enqueue("running")
		enqueue("scheduled", asynq.ProcessIn(time.Hour), asynq.Unique(time.Hour))
		enqueue("pending", asynq.Queue("other"))
		if err := tasks.PauseQueue("other"); err != nil {
			t.Fatal(err)
		}
		runs, tried := make(chan struct{}), false
		server := asynq.NewServerFromRedisClient(l, asynq.Config{
			Concurrency: 5, LogLevel: asynq.FatalLevel, TaskCheckInterval: 5 * time.Millisecond, DelayedTaskCheckInterval: 5 * time.Millisecond,
			RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration {
				if err.Error() == "again" {
					return 0
				}
				return time.Hour
			},
		})
		err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			switch id, _ := asynq.GetTaskID(ctx); {
			case id == "kept" || id == "again" && tried:
				return nil
			case id == "running":
				<-runs
				return nil
			default:
				tried = tried || id == "again"
				return errors.New(id)
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer server.Shutdown()
		defer close(runs)

		got := map[string]string{}
		for range 5 {
			c := <-l.received
			m, err := asynqdb.ParseMessage(c.Msg)
			if err != nil || c.Queue != "default" || m.ID != c.ID {
				t.Errorf("%+v has message %+v, %v", c, m, err)
			}
			got[c.ID] += fmt.Sprintf("%d %v %d %s;", c.Script, c.Failed, m.Retried, m.LastError)
		}
		retry, archive, complete := asynqdb.ScriptRetry, asynqdb.ScriptArchive, asynqdb.ScriptComplete
		if diff := cmp.Diff(map[string]string{
			"kept":     fmt.Sprintf("%d false 0 ;", complete),
			"again":    fmt.Sprintf("%d true 1 again;%d false 1 again;", retry, complete),
			"failed":   fmt.Sprintf("%d true 1 failed;", retry),
			"given-up": fmt.Sprintf("%d false 0 given up;", archive),
		}, got); diff != "" {
			t.Errorf("what asynq's server wrote back: want (-), got (+)\n%s", diff)
		}
		if queue := <-l.fills; queue != "default" {
			t.Errorf("asynq's Forward fills %q", queue)
		}
		if info, err := tasks.GetTaskInfo("default", "given-up"); err != nil || info.LastErr != "given up" {
			t.Errorf("the message that was set is %+v, %v", info, err)
		}
		wantKeys(t, rdb)
		wantScores(t, rdb, began)
	})
}

// wantKeys compares all of asynq's keys with those that are known, and their fields, but for
// what its servers write of themselves now and then.
func wantKeys(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	key, hash := asynqdb.Key, asynqdb.Hash
	want := map[string]string{
		"asynq:queues":                 "set",
		key("default", asynqdb.Active): "list [running]", key("default", asynqdb.Lease): "zset [running]",
		key("default", asynqdb.Retry): "zset [failed]", key("default", asynqdb.Archived): "zset [given-up]",
		key("default", asynqdb.Completed): "zset [again kept]", key("default", asynqdb.Scheduled): "zset [scheduled]",
		key("other", asynqdb.Pending): "list [pending]", key("other", asynqdb.Paused): "string",
		lockOf("default", "type", []byte("of scheduled")): "string",
		hash("default", "running"):                        "hash [msg state]", hash("default", "failed"): "hash [msg state]",
		hash("default", "given-up"): "hash [msg state]", hash("default", "again"): "hash [msg state]", hash("default", "kept"): "hash [msg state]",
		hash("default", "scheduled"): "hash [msg state unique_key]", hash("other", "pending"): "hash [msg pending_since state]",
	}
	for _, name := range []string{"processed", "failed", "processed:day", "failed:day"} {
		want[key("default", name)] = "string"
	}
	got := map[string]string{}
	day := regexp.MustCompile(`\d{4}-\d\d-\d\d$`)
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		text := rdb.Type(t.Context(), key).Val()
		if strings.HasPrefix(key, "asynq:servers") || strings.HasPrefix(key, "asynq:workers") {
			continue
		}
		var members []string
		switch text {
		case "list":
			members = rdb.LRange(t.Context(), key, 0, -1).Val()
		case "zset":
			members = rdb.ZRange(t.Context(), key, 0, -1).Val()
		case "hash":
			members = rdb.HKeys(t.Context(), key).Val()
		}
		if members != nil {
			slices.Sort(members)
			text += fmt.Sprint(" ", members)
		}
		got[day.ReplaceAllString(key, "day")] = text
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys of asynq: known (-), there (+)\n%s", diff)
	}
}

// wantScores: sorted sets are by unix seconds, and what is read of them and of jobs is so.
func wantScores(t *testing.T, rdb redis.UniversalClient, began time.Time) {
	t.Helper()
	db, now := asynqdb.New(rdb), time.Now()
	for set, ahead := range map[string]time.Duration{
		"running in " + asynqdb.Lease:       asynqdb.LeaseTime,
		"failed in " + asynqdb.Retry:        time.Hour,
		"scheduled in " + asynqdb.Scheduled: time.Hour,
		"kept in " + asynqdb.Completed:      time.Hour,
		"given-up in " + asynqdb.Archived:   0,
	} {
		id, name, _ := strings.Cut(set, " in ")
		score := rdb.ZScore(t.Context(), asynqdb.Key("default", name), id).Val()
		if at := time.Unix(int64(score), 0); at.Before(began.Add(ahead-time.Second)) || at.After(now.Add(ahead+time.Second)) {
			t.Errorf("%s until %v, want %s from now", set, at, ahead)
		}
	}
	states, err := db.Fields(t.Context(), "default", asynqdb.FieldState, "running", "failed", "scheduled", "kept", "given-up", "none")
	if want := []string{"active", "retry", "scheduled", "completed", "archived", ""}; err != nil || !slices.Equal(states, want) {
		t.Errorf("states %v, %v; want %v", states, err, want)
	}
	if lock := rdb.HGet(t.Context(), asynqdb.Hash("default", "scheduled"), "unique_key").Val(); lock != lockOf("default", "type", []byte("of scheduled")) {
		t.Errorf("the lock is %s", lock)
	}
	if queues, err := db.Queues(t.Context()); err != nil || len(queues) != 2 {
		t.Errorf("queues %v, %v", queues, err)
	}
}
