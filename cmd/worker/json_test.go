package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

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

// TestCommands_JSON runs each command with --json, except the commands that have no such flag.
func TestCommands_JSON(t *testing.T) {
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

	noJSON := []string{"run", "health"}
	var ran []string
	for _, tt := range []struct{ command, args, holds string }{
		{"limits set", "api --kind funnel --rate 20/s", `"done":"set","limit":"api","definition":"funnel 20/s capacity 1"`},
		{"limits set", "slow --kind sliding_log --rate 6/m", `"limit":"slow"`},
		{"limits set", "slow --key k --rate 1/m", `"key":"k","definition":"1/m"`},
		{"limits list", "", `"definition":"funnel 20/s capacity 1"`},
		{"limits show", "slow", `"key":"k","text":"1/m"`},
		{"limits unset", "slow --key k", `"done":"unset","limit":"slow","key":"k"`},
		{"limits pause", "api", `"done":"paused","limit":"api"`},
		{"limits resume", "api", `"done":"resumed"`},
		{"limits reset", "slow --key k", `"done":"reset","limit":"slow","key":"k"`},
		{"limits peek", "api", `"capacity":1`},
		{"limits delete", "api", `"done":"deleted"`},
		{"waiting", "", `[]`},
		{"job", "one", `"state":"archived"`},
		{"results", "", ``},
		{"jobs list", "", `"id":"two"`},
		{"jobs run", "one", `"done":"run","jobs":1,"queue":"default","job":"one"`},
		{"jobs archive", "one", `"done":"archived","jobs":1,"queue":"default","job":"one"`},
		{"jobs cancel", "--all", `"done":"canceled","jobs":0`},
		{"jobs delete", "--all --yes", `"done":"deleted","jobs":4`},
		{"queues list", "", `"queue":"default","paused":false,"pending":0`},
		{"queues pause", "default", `"done":"paused","queue":"default"`},
		{"queues resume", "default", `"done":"resumed","queue":"default"`},
		{"queues delete", "default", `"done":"deleted","jobs":0,"queue":"default"`},
		{"crawls", "", `[]`},
		{"schedules list", "", `"state":"active"`},
		{"schedules next", "2", `"name":"nightly"`},
		{"schedules pause", "nightly", `"done":"paused","schedule":"nightly"`},
		{"schedules resume", "nightly", `"done":"resumed"`},
		{"schedules run", "nightly", `"done":"run","schedule":"nightly","job":"nightly@run-`},
		{"status", "", `"queue":"default"`},
		{"throttle", "k 15 30 60", `"limited":false`},
	} {
		ran = append(ran, tt.command)
		args := strings.Fields(tt.command + " " + tt.args + " --json")
		args = append(args, "--config", config, "--redis", server.URL())
		out := command.Run(t.Context(), args...)
		if out.Code != 0 {
			t.Errorf("%q: exit code %d: %.500s", args, out.Code, out.Err)
			continue
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(out.Out)); err != nil && out.Out != "" {
			t.Errorf("%q prints no JSON: %v\n%.500s", args, err, out.Out)
		}
		if !strings.Contains(compact.String(), tt.holds) {
			t.Errorf("%q: no %s in\n%.800s", args, tt.holds, &compact)
		}
	}
	for _, path := range leaves(t) {
		if !slices.Contains(ran, path) && !slices.Contains(noJSON, path) {
			t.Errorf("%q is not tested with --json", path)
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
