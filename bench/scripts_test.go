package main

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The commands of each script are listed here, so that a review sees one more.
func TestCommandsOfScripts(t *testing.T) {
	want := map[string]float64{
		"enqueue": 4, "dequeue": 7, "done": 7, "dequeue, empty": 3, // asynq's
		"Allow":           4, // redis_rate's
		"dequeue, 8 jobs": 21,
		"allow, 1 limit":  6, "allow, 3 limits": 8,
		"acquire, 1 limit, 8 jobs": 7, "acquire, 3 limits, 8 jobs": 9, "acquire, denied, 8 jobs": 18, "acquire, called, 8 jobs": 14,
		"put_back, 8 jobs": 27, "grant, 8 jobs": 15, "promote, 8 jobs": 22,
		"a throttled job, enqueue to done": 28, "an undenied job, 1 limit": 11, "an undenied job, 3 limits": 11, "a job": 14,
	}
	got := map[string]float64{}
	for _, row := range rowsOf(t, "scripts", "--no-kir") {
		if name := row["case"].(string); row["system"] != "redis_rate" || name == "Allow" {
			got[name] = math.Round(row["commands"].(float64))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands of each script (-want +got):\n%s", diff)
	}
}

func TestIdle(t *testing.T) {
	rows := rowsOf(t, "idle", "--workers=1", "--warmup=100ms", "--observe=200ms")
	if len(rows) != 2 || rows[0]["commands_per_s"].(float64) <= 0 || rows[1]["system"] != "asynq" {
		t.Errorf("want a row for headgate and one for asynq: %v", rows)
	}
}
