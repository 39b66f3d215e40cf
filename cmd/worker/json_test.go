package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// leaves are the paths of all commands, such as "limits set".
func leaves(t *testing.T) (paths []string) {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Name("worker"))
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(false) {
		words := strings.Fields(leaf.Path())
		paths = append(paths, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "worker" || strings.HasPrefix(w, "<") }), " "))
	}
	return paths
}

// TestCommands runs each command.
func TestCommands(t *testing.T) {
	config := filepath.Join(t.TempDir(), "headgate.yaml")
	text := `limits: {api: {kind: funnel, rate: 10/s}, slow: {kind: sliding_log, rate: 5/m}}
tasks: {"http:request": {limits: [{limit: api}, {limit: slow, key: host(payload.url)}]}}
schedules: {nightly: {cron: "30 2 * * *", task: "http:request", payload: {url: "https://example.com/"}}}
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := redistest.Run(t)
	rdb := server.Client()
	defer rdb.Close()
	client, inspector := scheduler.NewClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	defer client.Close()
	for _, id := range []string{"one", "two", "three", "done"} {
		if _, err := client.Enqueue(asynq.NewTask("http:request", nil, asynq.TaskID(id))); err != nil {
			t.Fatal(err)
		}
		if err := inspector.ArchiveTask("default", id); err != nil {
			t.Fatal(err)
		}
	}

	if err := errors.Join(client.OpenBatch(t.Context(), "empty", nil), client.CloseBatch(t.Context(), "empty")); err != nil {
		t.Fatal(err)
	}

	ran := []string{"run", "health", "demo", "api", "drain"}
	for _, tt := range []struct{ command, args, holds string }{ // holds is JSON without spaces
		{"limits set", "api --kind funnel --rate 20/s", "api  funnel 20/s capacity 1\n"},
		{"limits set", "slow --kind sliding_log --rate 6/m", "slow  sliding_log 6/m\n"},
		{"limits set", "slow --key k --rate 1/m", "slow of k  1/m\n"},
		{"limits list", "--json", `"definition":"funnel 20/s capacity 1"`},
		{"limits show", "slow --json", `"key":"k","text":"1/m"`},
		{"limits unset", "slow --key k", "unset slow of k\n"},
		{"changes", "--max 1 --json", `"change":"unset","limit":"slow","key":"k","before":"1/m"`},
		{"limits pause", "api", "paused api\n"},
		{"limits resume", "api", "resumed api\n"},
		{"limits reset", "slow --key k", "reset slow of k\n"},
		{"limits peek", "api --json", `"capacity":1`},
		{"limits delete", "api", "deleted api\n"},
		{"job", "one --json", `"state":"archived"`},
		{"results", "--json", ``},
		{"jobs list", "--json", `"id":"two"`},
		{"jobs run", "one", "run 1 job\n"},
		{"jobs archive", "one", "archived 1 job\n"},
		{"jobs cancel", "--all", "canceled the context of 0 jobs;"},
		{"jobs delete", "--all --yes", "deleted 4 jobs\n"},
		{"queues list", "--json", `"queue":"default","paused":false,"pending":0`},
		{"queues pause", "default", "paused queue default\n"},
		{"queues resume", "default", "resumed queue default\n"},
		{"queues delete", "default", "deleted queue default, and 0 jobs\n"},
		{"crawls", "--json", `[]`},
		{"schedules list", "--json", `"state":"active"`},
		{"schedules pause", "nightly", "paused nightly\n"},
		{"schedules resume", "nightly", "resumed nightly\n"},
		{"schedules run", "nightly", "enqueued nightly@run-"},
		{"status", "--json", `"queue":"default"`},
		{"wait", "--batch empty --json", `"batch":"empty","jobs":0`},
		{"throttle", "k 15 30 60 --json", `"limited":false`},
	} {
		ran = append(ran, tt.command)
		args := append(strings.Fields(tt.command+" "+tt.args), "--config", config, "--redis", server.URL())
		out := command.Run(t.Context(), args...)
		var compact bytes.Buffer
		if strings.HasSuffix(tt.args, "--json") && out.Out != "" {
			if err := json.Compact(&compact, []byte(out.Out)); err != nil {
				t.Errorf("%q prints no JSON: %v", args, err)
			}
			out.Out = compact.String()
		}
		if out.Code != 0 || !strings.Contains(out.Out, tt.holds) {
			t.Errorf("%q: exit code %d: %.500s; no %s in\n%.800s", args, out.Code, out.Err, tt.holds, out.Out)
		}
	}
	for _, path := range leaves(t) {
		if !slices.Contains(ran, path) {
			t.Errorf("%q is not tested", path)
		}
	}
	checkNoted(t, rdb)
}

// checkNoted checks that the log of changes has the changes of schedules, queues and jobs.
func checkNoted(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	changes, err := throttle.New(rdb, throttle.Options{}).Changes(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		if c.By == "" {
			t.Errorf("no actor of %+v", c)
		}
		if c.Limit == "" {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s%d %s %s", c.What, c.Schedule, c.Jobs, c.Job.Queue, c.Job.ID)))
		}
	}
	slices.Reverse(got)
	want := []string{
		"run 1 default one", "archived 1 default one", "deleted 4",
		"paused 0 default", "resumed 0 default", "deleted 0 default",
		"paused nightly0", "resumed nightly0", "run nightly0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the changelog has %q, want %q", got, want)
	}
}

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
