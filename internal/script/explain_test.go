package script_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// raw matches text that users must not see: digests, and positions as Lua prints them.
var raw = regexp.MustCompile(`[0-9a-f]{40}|user_script|<string>|traceback|ERR |:\d+:`)

// The error names the user and the missing right, for a script and for a plain command.
func TestExplain_Permissions(t *testing.T) {
	server := redistest.Run(t)
	admin := server.Client()
	t.Cleanup(func() { _ = admin.Close() })
	if err := throttle.New(admin, throttle.Options{}).Define(t.Context(), throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}); err != nil {
		t.Fatal(err)
	}
	const all = "~hg:{default}:* &hg:{default}:* +@all"
	for _, tt := range []struct{ rights, want string }{
		{all + " -hset", "the Redis user few may not run HSET in the script limits/pause: the user needs +hset (NOPERM)"},
		{all + " -evalsha", "the Redis user few may not run EVALSHA: the user needs +evalsha (NOPERM)"},
		{"~hg:{other}:* &hg:{default}:* +@all", "the Redis user few may not use the key hg:{default}:: the user needs ~hg:{default}:* (NOPERM)"},
		{"~hg:{default}:* +@all", "the Redis user few may not use the channel hg:{default}: in the script limits/pause: the user needs &hg:{default}:* (NOPERM)"},
	} {
		args := []any{"ACL", "SETUSER", "few", "reset", "on", ">few"}
		for right := range strings.FieldsSeq(tt.rights) {
			args = append(args, right)
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		options := server.Options()
		options.Username, options.Password = "few", "few"
		few := redis.NewClient(options)
		err := throttle.New(few, throttle.Options{}).Pause(t.Context(), "api")
		if err == nil || !strings.HasSuffix(err.Error(), ": "+tt.want) {
			t.Errorf("with %s: %v\nwant %s", tt.rights, err, tt.want)
		}
		_ = few.Close()
	}
}

// An error about corrupt data has no words of Lua, on both kinds of Redis.
func TestExplain_CorruptData(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		limiter := throttle.New(rdb, throttle.Options{})
		if err := limiter.Define(ctx, throttle.Limit{Name: "api", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}); err != nil {
			t.Fatal(err)
		}
		rdb.Set(ctx, "hg:{default}:changes", "abc", 0)
		for range 2 { // miniredis runs a script itself first
			err := limiter.Pause(ctx, "api")
			if err == nil || raw.MatchString(err.Error()) || !strings.Contains(err.Error(), "the script limits/") || !script.IsCorrupt(err) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// The error replies of several versions of Redis.
func TestExplain_Versions(t *testing.T) {
	sha := script.New("limits/block").Hash()
	for said, want := range map[string]string{
		"ERR user_script:12: attempt to index a nil value script: " + sha + ", on @user_script:12.":                       "Redis holds corrupt data: attempt to index a nil value (the script limits/block, line 12)",
		"ERR Error running script (call to f_" + sha + "): @user_script:12: user_script:12: attempt to index a nil value": "Redis holds corrupt data: attempt to index a nil value (the script limits/block, line 12)",
		"OOM command not allowed when used memory > 'maxmemory'. script: " + sha + ", on @user_script:9.":                 "OOM command not allowed when used memory > 'maxmemory' (the script limits/block)",
		"WRONGTYPE no such kind script: 0123456789012345678901234567890123456789, on @user_script:9.":                     "WRONGTYPE no such kind (the script of asynq)",
		"NOPERM this user has no permissions to run the 'zadd' command":                                                   "the Redis user me may not run ZADD: the user needs +zadd (NOPERM)",
		"NOPERM User me has no permissions to access the 'asynq:queues' key":                                              "the Redis user me may not use the key asynq:queues: the user needs ~asynq:* (NOPERM)",
		"NOSCRIPT No matching script": "NOSCRIPT No matching script",
		"LOADING Redis is loading":    "LOADING Redis is loading",
	} {
		cmd := redis.NewCmd(t.Context(), "get", "key")
		if strings.Contains(said, sha) {
			cmd = redis.NewCmd(t.Context(), "evalsha", sha, 1, "key")
		}
		if got := script.Explain(answer(said), "me", cmd).Error(); got != want {
			t.Errorf("%s\nis %s\nwant %s", said, got, want)
		}
		damaged := strings.HasPrefix(said, "ERR ") || strings.HasPrefix(said, "WRONGTYPE ")
		if got := script.IsCorrupt(answer(said)); got != damaged {
			t.Errorf("%s: damaged data %t, want %t", said, got, damaged)
		}
	}
	if script.IsCorrupt(answer("ERR max number of clients reached")) {
		t.Error("a Redis with too many clients counts as damaged data")
	}
}

type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}
