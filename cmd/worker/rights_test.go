package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// The users of docs/operating.md have no rights that they do not need. The scripts show that they have
// those that they need.
func TestRights_Redis(t *testing.T) {
	server, _ := redistest.RunWithUsers(t, "../../docs/operating.md", "default")
	rdb := server.Client()
	t.Cleanup(func() { _ = rdb.Close() })
	const all = "worker enqueue page"
	job := asynqdb.Hash("default", "id")
	for command, users := range map[string]string{
		"get other":                   all,
		"set other 1":                 all,
		"hgetall hg:{another}:limits": all,
		"eval x 1 other":              all,
		"publish other x":             all,
		"flushall":                    all,
		"flushdb":                     all,
		"keys *":                      all,
		"config get requirepass":      all,
		"config set dir /":            all,
		"acl list":                    all,
		"client kill 127.0.0.1:1":     all,
		"monitor":                     all,
		"debug sleep 1":               all,
		"function flush":              all,
		"script flush":                all,
		"shutdown":                    all,
		"replicaof no one":            all,
		"hset " + job + " msg x":      "page",
		"del hg:{default}:limits":     "page enqueue",
		"zremrangebyscore " + asynqdb.Key("default", asynqdb.Retry) + " 0 1": "page enqueue",
		"hget " + job + " msg": "enqueue",
		"lrange " + asynqdb.Key("default", asynqdb.Pending) + " 0 1": "enqueue",
		"hset hg:{default}:limit:api text x":                         "page enqueue",
		"scan 0":                                                     "page enqueue",
		"subscribe asynq:cancel":                                     "page enqueue",
		"publish asynq:cancel id":                                    "page enqueue",
	} {
		for user := range strings.FieldsSeq(users) {
			args := []any{"acl", "dryrun", user}
			for word := range strings.FieldsSeq(command) {
				args = append(args, word)
			}
			said, err := rdb.Do(t.Context(), args...).Text()
			if err != nil || said == "OK" {
				t.Errorf("%s may %s: %s %v", user, command, said, err)
			}
		}
	}
}

// A user that Redis rejects is a mistake in the config.
func TestRun_WrongPassword(t *testing.T) {
	server, _ := redistest.RunWithUsers(t, "../../docs/operating.md", "default")
	config := filepath.Join(t.TempDir(), "headgate.yaml")
	proctest.Replace(t, config, limited)
	for url, want := range map[string]string{
		"redis://" + server.Addr():              "requires a password, and the URL has none: want redis://USER:PASSWORD@HOST:PORT: NOAUTH",
		"redis://worker:wrong@" + server.Addr(): "rejects the password of user worker, or the user does not exist: WRONGPASS",
		"redis://none:wrong@" + server.Addr():   "rejects the password of user none, or the user does not exist: WRONGPASS",
		"redis://:wrong@" + server.Addr():       "rejects the password of user default, or the user does not exist: WRONGPASS",
	} {
		for _, args := range []string{"run", "run --check", "limits list"} {
			out := command.Run(t.Context(), append(strings.Fields(args), "--redis", url, "--config", config)...)
			if want := "worker: Redis at redis://" + server.Addr() + " " + want; out.Code != 2 || !strings.Contains(out.Err, want) {
				t.Errorf("%s --redis %s: exit code %d, %s; want 2, %s", args, url, out.Code, out.Err, want)
			}
		}
	}
}
