package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestCheckRights: what docs/operating.md gives a worker is enough, and whatever is taken away
// from it is named.
func TestCheckRights(t *testing.T) {
	server, users := redistest.RunWithUsers(t, operating, "default", "--appendonly", "yes")
	admin := server.Client()
	t.Cleanup(func() { _ = admin.Close() })
	conf, err := config.Parse("headgate.yaml", []byte("redis: "+users.URLAs("worker", server)))
	if err != nil {
		t.Fatal(err)
	}
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
		{"-subscribe", "+subscribe", ": +subscribe: add"},
		{"-evalsha", "+evalsha", ": +evalsha: add"},
		{"resetkeys ~asynq:* ~hg:{default}:*", "~headgate:id", ": ~headgate:id: add"},
		{"resetkeys ~hg:{default}:* ~headgate:id", "~asynq:*", ": ~asynq:*: add"},
		{"resetkeys ~asynq:* ~headgate:id", "~hg:{default}:*", ": ~hg:{default}:*: add"},
		{"resetchannels &asynq:*", "&hg:{default}:*", ": &hg:{default}:*: add"},
	} {
		setUser(t, admin, "worker", tt.take)
		if _, err := Check(t.Context(), conf); err == nil || !strings.Contains(err.Error(), "the Redis user worker lacks rights that a worker needs"+tt.missing) {
			t.Errorf("without %s: %v", tt.missing, err)
		}
		setUser(t, admin, "worker", tt.give)
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
	conf, err := config.Parse("headgate.yaml", []byte("redis: "+users.URLAs("worker", server)))
	if err != nil {
		t.Fatal(err)
	}
	set := func(name, value string) {
		t.Helper()
		if err := admin.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
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
		setUser(t, admin, "default", rights)
		warns("a restart of Redis loses jobs and limits: it restores its append-only file as the user default")
	}
	setUser(t, admin, "default", "~* +@all")
	set("maxmemory-policy", "allkeys-lru")
	warns("Redis deletes jobs and limits")
	set("maxmemory-policy", "noeviction")
	set("appendonly", "no")
	warns("Redis has no append-only file")
	setUser(t, admin, "default", "-@all") // then it is no matter
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
		if got := clockWarning(t.Context(), rdb); (got != "") != warns || warns && !strings.Contains(got, fmt.Sprint("by ", ahead.Abs())) {
			t.Errorf("%s: %q", ahead, got)
		}
	}
}

func setUser(t *testing.T, admin *redis.Client, user, rights string) {
	t.Helper()
	args := []any{"acl", "setuser", user}
	for word := range strings.FieldsSeq(rights) {
		args = append(args, word)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%s: %v", rights, err)
	}
}
