package worker

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// TestCheckRights: what docs/operating.md gives a worker is enough, and whatever is taken away
// from it is named.
func TestCheckRights(t *testing.T) {
	server, users := redistest.RunWithUsers(t, operating, "default", "--appendonly", "yes")
	admin := server.Client()
	t.Cleanup(func() { _ = admin.Close() })
	conf := parse(t, "redis: "+users.URLAs("worker", server))
	if warnings, err := Check(t.Context(), conf); err != nil || len(warnings) > 0 {
		t.Errorf("the documented worker: %q, %v", warnings, err)
	}
	if refused := admin.ACLLog(t.Context(), 10).Val(); len(refused) > 0 {
		t.Errorf("the documented worker was refused %+v", refused[0])
	}
	if left := redistest.ContentsOf(t, admin, "*"); len(left) > 0 {
		t.Errorf("the check leaves %v behind", left)
	}
	for _, tt := range []struct{ take, give, missing string }{
		{"-zadd", "+zadd", ": +zadd: add"},
		{"-zadd -xadd -publish", "+zadd +xadd +publish", ": +publish +xadd +zadd: add"},
		{"-bzpopmin", "+bzpopmin", ": +bzpopmin: add"},
		{"-subscribe", "+subscribe", ": +subscribe: add"},
		{"-eval", "+eval", ": +eval: add"},
		{"-evalsha", "+evalsha", ": +evalsha: add"},
		{"resetkeys ~asynq:* ~hg:{default}:*", "~headgate:id", ": ~headgate:id: add"},
		{"resetkeys ~hg:{default}:* ~headgate:id", "~asynq:*", ": ~asynq:*: add"},
		{"resetkeys ~asynq:* ~headgate:id", "~hg:{default}:*", ": ~hg:{default}:*: add"},
		{"resetchannels &asynq:*", "&hg:{default}:*", ": &hg:{default}:*: add"},
	} {
		redisDo(t, admin, "acl setuser worker "+tt.take)
		if _, err := Check(t.Context(), conf); err == nil || !strings.Contains(err.Error(), "the Redis user worker lacks rights that a worker needs"+tt.missing) {
			t.Errorf("without %s: %v", tt.missing, err)
		}
		redisDo(t, admin, "acl setuser worker "+tt.give)
	}
	if warnings, err := Check(t.Context(), conf); err != nil || len(warnings) > 0 {
		t.Errorf("with all rights again: %q, %v", warnings, err)
	}
}

// TestCheckWarns: each setting that can lose jobs is a warning.
func TestCheckWarns(t *testing.T) {
	server, users := redistest.RunWithUsers(t, operating, "default", "--appendonly", "yes")
	admin := server.Client()
	t.Cleanup(func() { _ = admin.Close() })
	conf := parse(t, "redis: "+users.URLAs("worker", server))
	warns := func(want ...string) {
		t.Helper()
		got, err := Check(t.Context(), conf)
		if err != nil || len(got) != len(want) {
			t.Fatalf("it warns %q, %v; want %q", got, err, want)
		}
		for i, text := range want {
			if !strings.HasPrefix(got[i], text) {
				t.Errorf("it warns %q, want %q", got[i], text)
			}
		}
	}
	warns()
	for _, rights := range []string{"-@all", "+@all resetkeys ~hg:{default}:*", "~* -zadd"} {
		redisDo(t, admin, "acl setuser default "+rights)
		warns("a restart of Redis loses jobs and limits: it restores its append-only file as the user default")
	}
	redisDo(t, admin, "acl setuser default ~* +@all")
	redisDo(t, admin, "config set maxmemory-policy allkeys-lru")
	warns("Redis deletes jobs and limits")
	redisDo(t, admin, "config set maxmemory-policy noeviction")
	redisDo(t, admin, "acl setuser worker -info")
	warns("cannot check whether Redis evicts keys, and whether it saves its data: the Redis user worker needs +info")
	redisDo(t, admin, "acl setuser worker +info -acl|dryrun")
	warns("cannot check whether Redis restores all data after a restart: the Redis user worker needs +acl|dryrun")
	redisDo(t, admin, "config set appendonly no")
	warns("Redis has no append-only file")
	redisDo(t, admin, "acl setuser default -@all") // then it is no matter
	warns("Redis has no append-only file")
}

// TestClockWarning: a clock that differs by more than the bound is a warning, either way.
func TestClockWarning(t *testing.T) {
	for ahead, warns := range map[time.Duration]bool{0: false, 2 * time.Second: false, 5 * time.Second: true, -time.Hour: true} {
		_, rdb := redistest.Mini(t)
		rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if cmd, ok := cmd.(*redis.TimeCmd); ok {
				cmd.SetVal(cmd.Val().Add(ahead))
			}
			return err
		}))
		if got, err := clockWarning(t.Context(), rdb); err != nil || (got != "") != warns || warns && !strings.Contains(got, fmt.Sprint("by ", ahead.Abs())) {
			t.Errorf("%s: %q, %v", ahead, got, err)
		}
	}
}

// redisDo runs commands, which have semicolons between them.
func redisDo(t *testing.T, admin redis.UniversalClient, commands string) {
	t.Helper()
	for command := range strings.SplitSeq(commands, ";") {
		var args []any
		for word := range strings.FieldsSeq(command) {
			args = append(args, word)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
}

const operating = "../../../docs/operating.md"

// TestDocs_Redis_KeepsDataOverRestart runs a worker on a Redis with the users and the
// settings of docs/operating.md, and on a replica of it. A restart of either loses nothing.
func TestDocs_Redis_KeepsDataOverRestart(t *testing.T) {
	t.Parallel()
	primary, users := redistest.RunWithUsers(t, operating, "default", documentedSettings(t)...)
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica, _ := redistest.RunWithUsers(t, operating, "default", append(documentedSettings(t),
		"--replicaof", host, port, "--masteruser", "replica", "--masterauth", users["replica"], "--repl-diskless-sync-delay", "0")...)
	admin := primary.Client()
	defer admin.Close()
	proctest.Until(t, "replica", func() (bool, any) { // until then the primary takes no writes
		info := admin.Info(t.Context(), "replication").Val()
		return strings.Contains(info, "min_slaves_good_slaves:1"), info
	})

	runUntilJobsWait(t, users.URLAs("worker", primary), users.Client("enqueue", primary), admin)
	before := lasting(t, admin)
	if n := len(before); n < 15 {
		t.Fatalf("only %d keys: %v", n, before)
	}
	// The replica comes back while its primary is down, so that only its own file can restore the data.
	// With the primary there, it may empty itself for a new copy at any moment.
	stop(t, primary)
	copied := replica.Client()
	defer copied.Close()
	proctest.Until(t, "the replica's file", func() (bool, any) { // a replica rewrites it when it has copied its primary
		info := copied.Info(t.Context(), "persistence").Val()
		return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0"), info
	})
	stop(t, replica)
	for _, back := range []struct {
		name   string
		server *redistest.Server
	}{{"the replica", replica}, {"the primary", primary}} {
		if err := back.server.Restart(); err != nil {
			t.Fatal(err)
		}
		rdb := back.server.Client()
		defer rdb.Close()
		after := redistest.ContentsOf(t, rdb, "*")
		maps.DeleteFunc(after, func(key string, _ any) bool { _, lasts := before[key]; return !lasts })
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("what %s has after a restart (-before +after):\n%s", back.name, diff)
		}
	}
}

// settingRow is a row of the table of Redis's settings in docs/operating.md.
var settingRow = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| ([^|]+) \\|")

// documentedSettings are the settings of docs/operating.md, as redis-server's arguments.
func documentedSettings(t *testing.T) (args []string) {
	t.Helper()
	_, section, _ := strings.Cut(proctest.ReadFile(t, operating), "\n## Redis\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range settingRow.FindAllStringSubmatch(section, -1) {
		value, _, _ := strings.Cut(strings.Trim(row[2], "`"), "`")
		if row[1] == "maxmemory" {
			value = "100mb"
		}
		args = append(args, "--"+row[1], value)
	}
	if got := strings.Join(args, " "); !strings.Contains(got, "--appendonly yes") {
		t.Fatalf("%s has the settings %s", operating, got)
	}
	return args
}

// runUntilJobsWait runs a worker until the limit of its jobs is used up.
func runUntilJobsWait(t *testing.T, url string, producer, admin redis.UniversalClient) {
	t.Helper()
	defer producer.Close()
	conf := parse(t, fmt.Sprintf(`
redis: %s
limits: {few: {kind: sliding_log, rate: 3/day}}
commands: {say: {run: ["true"]}}
tasks: {"exec:say": {limits: [{limit: few}], retention: 24h}}
`, url))
	client := scheduler.NewClient(producer)
	for i := range 10 {
		if _, err := client.Enqueue(asynq.NewTask(tasks.PrefixExec+"say", nil), asynq.TaskID(fmt.Sprint(i)), asynq.Retention(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("worker", func(t *testing.T) {
		run(t, conf, Options{})
		proctest.Until(t, "waiting jobs", func() (bool, any) {
			info, err := asynq.NewInspectorFromRedisClient(admin).GetQueueInfo("default")
			// On a busy machine a job may start too late and wait for its permit again.
			return err == nil && info.Completed > 0 && info.Completed+info.Retry == 10, info
		})
	})
}

// lasting are the values of all keys that do not end within the time of a test.
func lasting(t *testing.T, rdb redis.UniversalClient) map[string]any {
	t.Helper()
	all := redistest.ContentsOf(t, rdb, "*")
	for key := range all {
		if left := rdb.TTL(t.Context(), key).Val(); left > 0 && left < 2*time.Minute {
			delete(all, key)
		}
	}
	return all
}

// stop stops a server as its operator does. A primary waits until its replicas have all of its data.
func stop(t *testing.T, server *redistest.Server) {
	t.Helper()
	rdb := server.Client()
	defer rdb.Close()
	_ = rdb.Do(t.Context(), "shutdown").Err() // it hangs up
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
}
