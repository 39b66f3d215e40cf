package worker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestTroubles_AreExplained: the log, /readyz and a metric explain a problem of Redis, and report its end.
func TestTroubles_AreExplained(t *testing.T) {
	set := func(name, value string) func(*testing.T, redis.UniversalClient) {
		return func(t *testing.T, admin redis.UniversalClient) {
			t.Helper()
			if err := admin.ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	do := func(lines ...string) func(*testing.T, redis.UniversalClient) {
		return func(t *testing.T, admin redis.UniversalClient) {
			t.Helper()
			for _, line := range lines {
				var args []any
				for word := range strings.FieldsSeq(line) {
					args = append(args, word)
				}
				if err := admin.Do(t.Context(), args...).Err(); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
			}
		}
	}
	for _, tt := range []struct {
		trouble, logged, ready string
		makes, mends           func(*testing.T, redis.UniversalClient)
	}{
		{
			"out_of_memory", `why="its memory is full"`, "503 cannot use Redis: its memory is full: ",
			set("maxmemory", "1"), set("maxmemory", "0"),
		},
		{
			"read_only", `why="it is a replica, which takes no writes"`, "503 cannot use Redis: it is a replica, which takes no writes: ",
			do("REPLICAOF 127.0.0.1 1"), do("REPLICAOF NO ONE"),
		},
		{
			"too_few_replicas", `why="it has fewer replicas than`, "503 cannot use Redis: it has fewer replicas",
			set("min-replicas-to-write", "1"), set("min-replicas-to-write", "0"),
		},
		{
			"no_password", `why="it requires a password, and none is set"`, "503 cannot use Redis: it requires a password, and none is set: ",
			do("ACL SETUSER default resetpass >another", "CLIENT KILL TYPE normal SKIPME yes"), do("ACL SETUSER default nopass"),
		},
		{
			"no_rights", `why="its user lacks rights" error="the Redis user default lacks rights that a worker needs: +hset +zadd: add`,
			"503 cannot use Redis: its user lacks rights: the Redis user default lacks rights that a worker needs: +hset +zadd: ",
			do("ACL SETUSER default -zadd -hset"), do("ACL SETUSER default +zadd +hset"),
		},
		{
			"evicts", `msg="Redis deletes jobs and limits when its memory is full, because its maxmemory-policy is allkeys-lru: have its operator set`, "200 ok\nbut: Redis deletes jobs and limits",
			set("maxmemory-policy", "allkeys-lru"), set("maxmemory-policy", "noeviction"),
		},
	} {
		t.Run(tt.trouble, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Run(t)
			admin := rdb.Client()
			defer admin.Close()
			url, _, log := runLogged(t, rdb, limited)
			wait := func(what string, active bool, ready string) {
				t.Helper()
				metric := map[bool]string{true: " 1\n", false: " 0\n"}[active]
				metric = fmt.Sprintf(`headgate_redis_trouble{scope="default",trouble=%q}`, tt.trouble) + metric
				proctest.Until(t, what, func() bool {
					status, answer := proctest.Get(t, url+"/readyz")
					_, metrics := proctest.Get(t, url+"/metrics")
					return strings.HasPrefix(fmt.Sprint(status, " ", answer), ready) && strings.Contains(metrics, metric)
				})
			}
			wait("start", false, "200 ok")
			tt.makes(t, admin)
			wait("trouble", true, tt.ready)
			proctest.Until(t, "line in the log", func() bool { return strings.Contains(log.String(), tt.logged) })
			tt.mends(t, admin)
			wait("end", false, "200 ok")
			proctest.Until(t, "end in the log", func() bool {
				return strings.Contains(log.String(), "Redis is back: jobs go on") || strings.Contains(log.String(), "keeps jobs and limits again")
			})
			if n := strings.Count(log.String(), tt.logged); n != 1 {
				t.Errorf("logged %d times, want once:\n%s", n, log.String())
			}
			for line := range strings.Lines(log.String()) {
				if (strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")) && !strings.Contains(line, tt.logged) {
					t.Errorf("also logged: %s", line)
				}
			}
		})
	}
}
