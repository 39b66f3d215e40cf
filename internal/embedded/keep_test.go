package embedded

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

func client(t *testing.T, s *Server) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Addr()})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// everything is all keys with their values.
func everything(t *testing.T, rdb *redis.Client) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		switch kind := rdb.Type(t.Context(), key).Val(); kind {
		case "string":
			all[key] = rdb.Get(t.Context(), key).Val()
		case "hash":
			all[key] = rdb.HGetAll(t.Context(), key).Val()
		case "list":
			all[key] = rdb.LRange(t.Context(), key, 0, -1).Val()
		case "set":
			all[key] = rdb.SMembers(t.Context(), key).Val()
		case "zset":
			all[key] = rdb.ZRangeWithScores(t.Context(), key, 0, -1).Val()
		case "stream":
			all[key] = rdb.XRange(t.Context(), key, "-", "+").Val()
		default:
			t.Errorf("%s is a %s", key, kind)
		}
	}
	return all
}

func TestCloseKeepsEverything(t *testing.T) {
	f := Folder(t.TempDir())
	first := start(t, f)
	ctx, rdb := t.Context(), client(t, first)
	binary := "\x00\xff\r\n\"é"
	for _, err := range []error{
		rdb.Set(ctx, binary, binary, 0).Err(),
		rdb.Set(ctx, "empty", "", time.Hour).Err(),
		rdb.HSet(ctx, "hash", "a", binary, "b", "").Err(),
		rdb.RPush(ctx, "list", "b", "a", "b", binary).Err(),
		rdb.SAdd(ctx, "set", "a", binary).Err(),
		rdb.ZAdd(ctx, "sorted", redis.Z{Score: 1785555555555555, Member: "µs"}, redis.Z{Score: 0.1, Member: binary},
			redis.Z{Score: math.Inf(1), Member: "never"}).Err(),
		rdb.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []string{"a", binary, "b", ""}}).Err(),
		rdb.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []string{"a", ""}}).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := everything(t, rdb)
	if err := rdb.Set(ctx, "over", "by the time it is restored", 30*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // A start and a stop change nothing.
		next := start(t, f)
		if next.crashed {
			t.Error("the last one has crashed, and was closed")
		}
		rdb := client(t, next)
		for rdb.Exists(ctx, "over").Val() > 0 {
			continue // until its time is over
		}
		if diff := cmp.Diff(want, everything(t, rdb)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if ttl := rdb.TTL(ctx, "empty").Val(); ttl < 50*time.Minute || ttl > time.Hour {
			t.Errorf("a key of an hour expires in %s", ttl)
		}
		if err := next.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Jobs in every state are in it afterwards.
func TestCloseKeepsJobs(t *testing.T) {
	f := Folder(t.TempDir())
	first := start(t, f)
	tasks := asynq.NewClientFromRedisClient(client(t, first))
	for id, when := range map[string]asynq.Option{
		"pending": asynq.ProcessIn(0), "scheduled": asynq.ProcessIn(time.Hour), "archived": asynq.ProcessIn(time.Hour),
		"unique": asynq.Unique(time.Hour),
	} {
		if _, err := tasks.EnqueueContext(t.Context(), asynq.NewTask(id, []byte(id)), asynq.TaskID(id), when); err != nil {
			t.Fatal(err)
		}
	}
	if err := asynq.NewInspectorFromRedisClient(client(t, first)).ArchiveTask("default", "archived"); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	rdb := client(t, start(t, f))
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	for id, state := range map[string]asynq.TaskState{
		"pending": asynq.TaskStatePending, "unique": asynq.TaskStatePending,
		"scheduled": asynq.TaskStateScheduled, "archived": asynq.TaskStateArchived,
	} {
		job, err := inspector.GetTaskInfo("default", id)
		if err != nil || job.State != state || string(job.Payload) != id {
			t.Errorf("job %s: %+v, %v; want it %s", id, job, err, state)
		}
	}
	_, err := asynq.NewClientFromRedisClient(rdb).EnqueueContext(t.Context(), asynq.NewTask("unique", []byte("unique")), asynq.Unique(time.Hour))
	if err == nil {
		t.Error("a unique job was taken twice")
	}
}

func TestWhatWasKeptMustBeReadable(t *testing.T) {
	f := Folder(t.TempDir())
	if err := os.WriteFile(f.keptFile(), []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := f.NewHost(nil).Addr(t.Context())
	if err == nil || !strings.Contains(err.Error(), "move the file away to start without them") {
		t.Errorf("Start gives %v", err)
	}
	if _, err := os.Stat(f.keptFile()); err != nil {
		t.Errorf("the file after a start that failed: %v", err)
	}
}

func TestFoundACrash(t *testing.T) {
	f := Folder(t.TempDir())
	first := start(t, f)
	if first.crashed {
		t.Error("the first server found one that crashed")
	}
	if err := client(t, first).Set(t.Context(), "early", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := first.saveAgain(); err != nil {
		t.Fatal(err)
	}
	if err := client(t, first).Set(t.Context(), "late", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	first.end() // as a crash would
	second := start(t, f)
	if !second.crashed || time.Since(second.saved) > time.Minute {
		t.Errorf("the server after a crash found one that did: %v, saved %s", second.crashed, second.saved)
	}
	if got := client(t, second).Keys(t.Context(), "*").Val(); len(got) != 1 || got[0] != "early" {
		t.Errorf("it has %q, want what was saved", got)
	}
	second.end() // before it has saved anything by itself
	third := start(t, f)
	if got := client(t, third).Keys(t.Context(), "*").Val(); len(got) != 1 || got[0] != "early" {
		t.Errorf("the one after the next crash has %q", got)
	}
	if err := errors.Join(client(t, third).FlushAll(t.Context()).Err(), third.Close()); err != nil {
		t.Error(err)
	}
	if fourth := start(t, f); fourth.crashed {
		t.Error("the server after an empty one found one that crashed")
	}
}

// A server that cannot save what it has is not there, and the next one has what was kept.
func TestStartThatCannotSave(t *testing.T) {
	f := Folder(t.TempDir())
	first := start(t, f)
	if err := client(t, first).Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	aside, addr := f.path("aside"), ""
	server, err := f.start(func(s *Server) (func(), error) {
		addr = s.Addr()
		// A folder with something in it cannot be removed, whoever tries.
		err := errors.Join(os.Rename(f.keptFile(), aside), os.MkdirAll(filepath.Join(f.keptFile(), "full"), 0o700))
		return func() { t.Error("it is said to have started") }, err
	})
	if _, ok := errors.AsType[*StartError](err); !ok || server != nil {
		t.Errorf("start gives %v, %v; want a StartError alone", server, err)
	}
	if conn, err := net.Dial("unix", addr); err == nil {
		conn.Close()
		t.Errorf("the server still listens at %s", addr)
	}
	if err := errors.Join(os.RemoveAll(f.keptFile()), os.Rename(aside, f.keptFile())); err != nil {
		t.Fatal(err)
	}
	next := start(t, f)
	if got := client(t, next).Get(t.Context(), "key").Val(); got != "value" || next.crashed {
		t.Errorf("the next server has %q, after a crash: %v", got, next.crashed)
	}
}

// TestWhatIsKeptIsOfOneMoment: commands that run while it is written change nothing in it.
func TestWhatIsKeptIsOfOneMoment(t *testing.T) {
	m, rdb := redistest.Mini(t)
	ctx := t.Context()
	fill := func(n int) {
		for i := range n {
			text := fmt.Sprint(n, "-", i)
			rdb.RPush(ctx, "list", text)
			rdb.SAdd(ctx, "set", text)
			rdb.HSet(ctx, "hash", text, i)
			rdb.ZAdd(ctx, "zset", redis.Z{Score: float64(i), Member: text})
			rdb.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []string{"text", text}})
		}
	}
	fill(10)
	all, err := readAll(m)
	if err != nil {
		t.Fatal(err)
	}
	fill(20)
	rdb.LSet(ctx, "list", 0, "changed")
	rdb.LRem(ctx, "list", 0, "10-1")
	rdb.ZRem(ctx, "zset", "10-0")
	rdb.XTrimMaxLen(ctx, "stream", 1)
	for _, k := range all {
		n := max(len(k.List), len(k.Set), len(k.Hash), len(k.Sorted), len(k.Stream))
		if n != 10 || k.Kind == "list" && k.List[0] != "10-0" || k.Kind == "stream" && k.Stream[0].Values[1] != "10-0" {
			t.Errorf("%s has %d entries, want the 10 that it had: %+v", k.Key, n, k)
		}
	}
	if len(all) != 5 {
		t.Errorf("%d keys, want 5", len(all))
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestAFullDiskIsOneError: however many keys there are.
func TestAFullDiskIsOneError(t *testing.T) {
	all := make([]kept, 1000)
	for i := range all {
		all[i] = kept{Key: fmt.Sprint("key-", i), Kind: "string", Text: strings.Repeat("x", 100)}
	}
	if err := encode(all, full{}); err == nil || err.Error() != "no space left" {
		t.Errorf("%v, want it once", err)
	}
}
