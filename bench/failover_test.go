package main

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain lets the tests' program be a worker, too, as [startWorker] wants it, and
// a crawler, or idle.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{workerCommand, collyCommand, idleWorkerCommand}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestFailover(t *testing.T) {
	rows := rowsOf(t, "failover", "--jobs=400", "--lanes=40", "--rate=10", "--settle=100ms", "--observe=100ms")
	if diff := cmp.Diff(sortedWords("case system jobs lanes fill_s unused_s"), keysOf(rows[0])); diff != "" {
		t.Error(diff)
	}
	if unused := rows[0]["unused_s"].(float64); unused <= 0 {
		t.Errorf("permits were unused for %v s, want some time", unused)
	}
}

func TestLongestGap(t *testing.T) {
	for _, test := range []struct {
		name    string
		moments []int64
		want    time.Duration
	}{
		{"none", nil, 0},
		{"at the start", []int64{150, 160, 195}, 50},
		{"in the middle, in any order", []int64{190, 110, 120}, 70},
		{"those before do not count", []int64{20, 90, 130}, 30},
	} {
		if got := longestGap(test.moments, 100); got != test.want*time.Microsecond {
			t.Errorf("%s: %s, want %d µs", test.name, got, test.want)
		}
	}
}
