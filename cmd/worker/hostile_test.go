package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// Texts with control characters, and with many characters.
const (
	evilKey = "\u009b31m\u202egpj\x7f\xff" // a key has no lower control characters
	evil    = "\x1b]0;owned\x07\x1b[2J\u009b31m\u202egpj.exe\r"
)

var (
	evilBytes = evil + "\xff\xfe" + strings.Repeat("A", 1<<17)
	evilLong  = evil + strings.Repeat("A", 1<<17)
)

// hostileJobs leaves one job of each kind: done, archived and waiting.
func hostileJobs(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	rules := scheduler.Rules{
		Limits: []throttle.Limit{{Name: "slow", Kind: throttle.SlidingLog, Rate: throttle.PerHour(1)}},
		RuleFor: func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
			if strings.HasPrefix(task.Type(), "limited") {
				return scheduler.Rule{Needs: []throttle.Need{{Limit: "slow", Key: evilKey}}}, nil
			}
			return scheduler.Rule{}, nil
		},
	}
	server, err := scheduler.NewServer(rdb, rules, asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel})
	if err != nil {
		t.Fatal(err)
	}
	handler := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if strings.HasPrefix(task.Type(), "failing") {
			_, _ = task.ResultWriter().Write([]byte(evilBytes))
			return errors.New(evilLong)
		}
		_, err := task.ResultWriter().Write([]byte(evilBytes))
		return err
	})
	client := scheduler.NewClient(rdb)
	defer client.Close()
	for _, name := range []string{"done", "failing", "limited", "limited2"} {
		task := asynq.NewTask(name+evil, []byte(evilBytes))
		_, err := client.Enqueue(task, asynq.TaskID(name+evil), asynq.MaxRetry(0), asynq.Retention(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Start(handler); err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	proctest.Until(t, "end of the jobs", func() (bool, any) {
		info, err := inspector.GetQueueInfo("default")
		return err == nil && info.Completed == 2 && info.Archived == 1 && info.Retry == 1, info
	})
}

// No command prints control characters of IDs, keys, payloads, errors and results.
func TestHostileJobs(t *testing.T) {
	server := redistest.Run(t)
	rdb := server.Client()
	defer rdb.Close()
	hostileJobs(t, rdb)
	hostileLimits(t, rdb)
	const id = evil
	for args, hasJSON := range map[string]bool{
		"job done" + id:                        true,
		"job failing" + id:                     true,
		"job limited2" + id:                    true,
		"results":                              true,
		"results --failed":                     true,
		"jobs list":                            true,
		"limits list":                          true,
		"limits show slow":                     true,
		"limits peek slow --key " + hostileArg: true,
		"status":                               false,
		"limits set slow --rate 1/h --key " + hostileArg: false,
		"limits reset slow --key " + hostileArg:          false,
		"crawls":                                         false,
		"schedules list":                                 false,
	} {
		shown := hostileRun(t, server.URL(), strings.Split(args, " "))
		checkShown(t, args, shown)
		if len(shown) > 20_000 {
			t.Errorf("%q: %d bytes", args, len(shown))
		}
		if hasJSON {
			checkShown(t, args+" --json", hostileRun(t, server.URL(), append(strings.Split(args, " "), "--json")))
		}
	}
	checkShown(t, "limits unset", hostileRun(t, server.URL(), []string{"limits", "unset", "slow", "--key", hostileArg}))
	hostileFiles(t, server.URL())
	checkShown(t, "jobs run", hostileRun(t, server.URL(), []string{"jobs", "run", "failing" + id}))
	checkShown(t, "jobs delete", hostileRun(t, server.URL(), []string{"jobs", "delete", "limited2" + id}))
	for _, args := range []string{"jobs delete no" + id, "jobs run limited2" + id, "jobs list --state " + id, "jobs list --limit no" + id, "limits pause no" + id, "crawls no" + id, "schedules pause no" + id, "limits set no" + id + " --kind funnel --rate " + id, "throttle " + id + " x y z", "job no" + id, "jobs run no" + id, "limits show no" + id, "results --queue " + id} {
		out := command.Run(t.Context(), append(strings.Split(args, " "), "--redis", server.URL())...)
		if out.Code == 0 {
			t.Errorf("%q succeeds", args)
		}
		checkShown(t, args, out.Err)
	}
}

// hostileArg is a key that can be an argument of a command: valid UTF-8.
const hostileArg = "\u009b31m\u202egpj\x7f"

// hostileLimits sets and blocks a hostile key, as a hostile actor.
func hostileLimits(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	limiter := throttle.New(rdb, throttle.Options{})
	me := throttle.WithActor(t.Context(), evilLong)
	err := errors.Join(
		limiter.SetKey(me, "slow", evilKey, throttle.Override{Rate: throttle.PerHour(2)}),
		limiter.Block(me, "slow", evilKey, time.Now().Add(time.Hour)),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// hostileFiles checks that results are written below their folder.
func hostileFiles(t *testing.T, url string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "results")
	checkShown(t, "results --out", hostileRun(t, url, []string{"results", "--out", folder}))
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%v, %v: want files", entries, err)
	}
	for _, entry := range entries {
		checkShown(t, "a file's name", entry.Name())
	}
	above, err := os.ReadDir(filepath.Dir(folder))
	if err != nil || len(above) != 1 {
		t.Errorf("%v, %v: want nothing beside the folder", above, err)
	}
}

func hostileRun(t *testing.T, url string, args []string) string {
	t.Helper()
	out := command.Run(t.Context(), append(args, "--redis", url)...)
	if out.Code != 0 {
		t.Fatalf("%q: exit code %d: %.500s", args, out.Code, out.Err)
	}
	return out.Out
}

func checkShown(t *testing.T, what, shown string) {
	t.Helper()
	if !utf8.ValidString(shown) {
		t.Errorf("%q is not UTF-8", what)
	}
	bad := func(r rune) bool { return r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0x202e }
	if i := strings.IndexFunc(shown, bad); i >= 0 {
		t.Errorf("%q shows %.40q", what, shown[i:])
	}
}
