package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNeighbour(t *testing.T) {
	row := rowsOf(t, "neighbour", "--jobs=2000", "--every=2ms")[0]
	if diff := cmp.Diff(sortedWords("case system lines_per_s neighbours start_p50_ms start_p99_ms"), keysOf(row)); diff != "" {
		t.Error(diff)
	}
	if lines, jobs := row["lines_per_s"].(float64), row["neighbours"].(float64); lines <= 0 || jobs < 1 {
		t.Errorf("%v lines a second, %v neighbours", lines, jobs)
	}
}
