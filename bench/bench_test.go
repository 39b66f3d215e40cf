package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/go-redis/redis_rate/v10"
	"github.com/google/go-cmp/cmp"
)

// TestMain lets the tests' program be a worker, too, as [startIdler] and [startBusy] want it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == idleWorkerCommand || os.Args[1] == busyWorkerCommand) {
		main()
		return
	}
	os.Exit(m.Run())
}

// rowsOf runs a command with --json and returns its array.
func rowsOf(t *testing.T, args ...string) []map[string]any {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), append(args, "--json"), &stdout, &stderr); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &stderr)
	}
	decoder := json.NewDecoder(&stdout)
	var rows []map[string]any
	if err := decoder.Decode(&rows); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		t.Errorf("%v: there is more than one JSON array", args)
	}
	return rows
}

func keysOf(row map[string]any) []string { return slices.Sorted(maps.Keys(row)) }

func sortedWords(text string) []string { return slices.Sorted(strings.FieldsSeq(text)) }

func TestBacklog(t *testing.T) {
	rows := rowsOf(t, "backlog", "--jobs=60", "--rate=200", "--capacity=10", "--against=wiki", "--repeat=2", "--waiting=500")
	want := sortedWords(`case system done limit_used denials_per_job over
		redis_cpu_ms_per_job redis_cpu_ms_enqueue redis_commands_per_job lateness_ms_p50 lateness_ms_p99 bytes_per_waiting_job elapsed_s ideal_s`)
	var systems []string
	for _, row := range rows {
		systems = append(systems, row["system"].(string))
		if diff := cmp.Diff(want, keysOf(row)); diff != "" {
			t.Errorf("%s: keys: %s", row["system"], diff)
		}
		if row["done"] != 60.0 {
			t.Errorf("%s ran %v jobs, want 60", row["system"], row["done"])
		}
	}
	if diff := cmp.Diff([]string{"headgate", "wiki"}, systems); diff != "" {
		t.Fatal(diff)
	}
	if rows[0]["over"] != 0.0 || rows[0]["ideal_s"] != 0.25 {
		t.Errorf("headgate: over %v, ideal %v s; want 0 and 0.25", rows[0]["over"], rows[0]["ideal_s"])
	}
	if bytes, ok := rows[0]["bytes_per_waiting_job"].(float64); !ok || bytes < 50 {
		t.Errorf("headgate: %v bytes per waiting job, want a record, a ticket and a place", rows[0]["bytes_per_waiting_job"])
	}
}

func TestBacklogWithHostsThatArrives(t *testing.T) {
	rows := rowsOf(t, "backlog", "--jobs=40", "--rate=100", "--hosts=4", "--host-rate=50", "--arrive=200", "--waiting=0")
	if len(rows) != 1 || rows[0]["done"] != 40.0 || rows[0]["over"] != 0.0 {
		t.Errorf("want one row, with 40 jobs and 0 over: %v", rows)
	}
}

func TestOverhead(t *testing.T) {
	rows := rowsOf(t, "overhead", "--jobs=200", "--pairs=1")
	var got []string
	for _, row := range rows {
		if diff := cmp.Diff(sortedWords("system limits jobs_per_s ratio_to_asynq"), keysOf(row)); diff != "" {
			t.Error(diff)
		}
		got = append(got, row["system"].(string))
	}
	if diff := cmp.Diff([]string{"asynq", "headgate", "headgate", "headgate, ten fairness keys", "redis_rate", "redis_rate"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestLimiter(t *testing.T) {
	rows := rowsOf(t, "limiter", "--seconds=0.01", "--pairs=1", "--hammer=0.4")
	over := map[string]any{}
	for _, row := range rows {
		if diff := cmp.Diff(sortedWords("case system ops_per_s ratio_to_redis_rate bytes_per_key over"), keysOf(row)); diff != "" {
			t.Error(diff)
		}
		if row["system"] == "headgate" && row["over"] != nil && row["over"] != 0.0 {
			t.Errorf("headgate, %s: %v over, want 0", row["case"], row["over"])
		}
		if row["system"] == "redis_rate" {
			over[row["case"].(string)] = row["over"]
		}
	}
	if over["funnel"] != 0.0 {
		t.Errorf("redis_rate is a funnel, and %v over", over["funnel"])
	}
	if n, _ := over["sliding_log"].(float64); n < 1 {
		t.Errorf("redis_rate lets through more than 10 in a second, but %v over", over["sliding_log"])
	}
}

// What timedRate notes must lie between the times by Redis before and after.
func TestTimedRate(t *testing.T) {
	err := withBench(t.Context(), io.Discard, io.Discard, func(b *bench) error {
		limiter, err := timedRate(b.ctx, b.rdb)
		if err != nil {
			return err
		}
		for i := range 5 {
			before := b.rdb.Time(b.ctx).Val().UnixMicro()
			ctx, v := withVisit(b.ctx)
			result, err := limiter.Allow(ctx, "key", redis_rate.PerHour(3))
			if err != nil {
				return err
			}
			after := b.rdb.Time(b.ctx).Val().UnixMicro()
			switch {
			case i < 3 && (v.at < before || v.at > after):
				t.Errorf("call %d: let through at %d, not in [%d, %d]", i, v.at, before, after)
			case i >= 3 && (result.Allowed != 0 || v.at != 0):
				t.Errorf("call %d: allowed %d at %d, want a denial and no moment", i, result.Allowed, v.at)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMistakes(t *testing.T) {
	tests := []struct{ args, want string }{
		{"backlog --against=sidekiq", "--against sidekiq: want some of wiki, bullmq"},
		{"backlog --jobs=1 --rate=0", "--jobs 1: want 2 or more\n--rate 0: want 1 or more"},
		{"backlog --hosts=3 --against=bullmq --jobs=2", "bullmq: --against bullmq: it has one limit a queue, so not with --hosts; nor is it measured with --arrive"},
		{"shards --rate=1", "--jobs, --rate, --capacity: want 48 or more, some for each shard of each master; --concurrency: want 1 or more"},
		{"overhead --pairs=0", "--jobs, --concurrency, --pairs: want 1 or more"},
		{"limiter --pairs=0", "--seconds, --pairs, --goroutines, --hammer: want more than 0"},
	}
	for _, tt := range tests {
		err := run(t.Context(), strings.Fields(tt.args), io.Discard, io.Discard)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, want %s", tt.args, err, tt.want)
		}
	}
}

func TestNoRedisServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := run(t.Context(), []string{"overhead"}, io.Discard, io.Discard)
	if err == nil || !strings.HasPrefix(err.Error(), "redis-server is not installed") {
		t.Errorf("%v, want that redis-server is not installed", err)
	}
	if _, err := installBullMQ(&bench{}); err == nil || !strings.Contains(err.Error(), "needs node") {
		t.Errorf("%v, want that node is needed", err)
	}
	if _, err := exec.LookPath("node"); err == nil {
		t.Error("node is still on the PATH: the test shows nothing")
	}
}

func TestBusy(t *testing.T) {
	rows := rowsOf(t, "busy", "--queues=1", "--repeat=1", "--warmup=1s", "--observe=1s")
	want := sortedWords("case system limit_used limit_used_alone limit_used_worst busy_queues_share")
	if len(rows) != 1 || cmp.Diff(want, keysOf(rows[0])) != "" {
		t.Fatalf("%v, want a row with %v", rows, want)
	}
	if used := rows[0]["limit_used"].(float64); used <= 0 || used > 1.1 {
		t.Errorf("%v of the limit used", used)
	}
}
