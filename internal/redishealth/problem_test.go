package redishealth

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestOf: each error of a real Redis is recognized, wrapped or not.
func TestOf(t *testing.T) {
	rdb := redistest.Run(t)
	admin := rdb.Client()
	defer admin.Close()
	ctx := t.Context()
	do := func(args ...any) {
		t.Helper()
		if err := admin.Do(ctx, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	write := func() error { return admin.Set(ctx, "k", "v", 0).Err() }
	check := func(want Problem, err error) {
		t.Helper()
		if got := ProblemOf(fmt.Errorf("the limiter: %w", err)); got != want || (want != None) != (got.Description() != "") {
			t.Errorf("%v is %q, %q; want %q", err, got, got.Description(), want)
		}
	}
	check(None, admin.Get(ctx, "none").Err())
	check(NoPassword, serverError("ERR Protocol error: unauthenticated multibulk length"))
	do("CONFIG", "SET", "maxmemory", "1")
	check(OutOfMemory, write())
	do("CONFIG", "SET", "maxmemory", "0")
	do("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+get", "+ping")
	as := func(password string) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: rdb.Addr(), Username: "reader", Password: password, MaxRetries: -1})
	}
	check(WrongPassword, as("wrong").Get(ctx, "none").Err())
	check(NoRights, as("secret").Eval(ctx, "return 1", nil).Err())
	do("ACL", "SETUSER", "reader", "+eval")
	check(NoRights, as("secret").Eval(ctx, "return redis.call('SET', KEYS[1], 1)", []string{"k"}).Err())
	check(NoPassword, func() error {
		do("ACL", "SETUSER", "default", "resetpass", ">another")
		defer do("ACL", "SETUSER", "default", "nopass")
		anonymous := redis.NewClient(&redis.Options{Addr: rdb.Addr(), MaxRetries: -1})
		defer anonymous.Close()
		return anonymous.Ping(ctx).Err()
	}())
	check(NoRights, as("secret").Set(ctx, "k", "v", 0).Err())
	check(NoRights, errors.New("UNKNOWN: redis eval error: the Redis user u may not run HSET: the user needs +hset (NOPERM)")) // by asynq
	check(Unreachable, context.DeadlineExceeded)
	check(Unreachable, errors.New("connection refused"))
	check(None, admin.Do(ctx, "NOSUCH").Err())
	if ProblemOf(nil) != None {
		t.Error("no error is a problem")
	}
	for _, trouble := range All() {
		if trouble.Description() == "" {
			t.Errorf("%s says nothing", trouble)
		}
	}
}

// TestEvictionPolicyOfAnyInfo: servers like Redis may reply to INFO without section headers.
func TestEvictionPolicyOfAnyInfo(t *testing.T) {
	for info, want := range map[string]string{
		"maxmemory_policy:allkeys-lru\r\n":                               "allkeys-lru",
		"# Memory\r\nused_memory:1\r\nmaxmemory_policy:volatile-ttl\r\n": "volatile-ttl",
		"# Memory\r\nmaxmemory_policy:noeviction\r\n":                    "",
		"used_memory:1": "",
	} {
		m, rdb := redistest.Mini(t)
		redistest.Before(m, func(c *server.Peer, cmd string, _ ...string) bool {
			if cmd == "INFO" {
				c.WriteBulk(info)
			}
			return cmd == "INFO"
		})
		if got, err := EvictionPolicy(t.Context(), rdb); got != want || err != nil {
			t.Errorf("%q is %q, %v, want %q", info, got, err, want)
		}
	}
}

// serverError is an error reply of Redis.
type serverError string

func (e serverError) Error() string { return string(e) }

func (serverError) RedisError() {}

// TestTryRights_EachCommand: TryRights tries each command that a script calls.
func TestTryRights_EachCommand(t *testing.T) {
	files, err := filepath.Glob("../../lua/*/*.lua")
	more, _ := filepath.Glob("../../lua/*/include/*.lua")
	files = append(files, more...)
	if err != nil || len(files) < 50 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	var tried []string
	for _, group := range scriptCommands {
		tried = append(tried, strings.Fields(group[1])...)
	}
	rdb := redistest.Real(t)
	for _, file := range append(files, "../../lua/include/scope.lua") {
		text := proctest.ReadFile(t, file)
		for _, word := range regexp.MustCompile(`'([A-Z]{3,})'`).FindAllStringSubmatch(text, -1) {
			known, err := rdb.Do(t.Context(), "COMMAND", "INFO", word[1]).Slice()
			if err != nil {
				t.Fatal(err)
			}
			if known[0] != nil && !slices.Contains(tried, strings.ToLower(word[1])) {
				t.Errorf("%s calls %s, whose right is not tried", file, word[1])
			}
		}
	}
}
