//go:build linux

package main

import "testing"

func TestParseStat(t *testing.T) {
	for text, want := range map[string]process{
		"12 (redis-server) S 7 12 0 -1\n": {12, 7, "redis-server", "S"},
		"13 (a) R (b)) T 8 13 0\n":        {13, 8, "a) R (b)", "T"},
	} {
		if got, err := parseStat(text); got != want || err != nil {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	if _, err := parseStat("12 redis-server S 7\n"); err == nil {
		t.Error("no error without parentheses")
	}
}

// TestRun_LeavesNoneStopped: the command's processes are frozen, and go on: the shell waits for all.
func TestRun_LeavesNoneStopped(t *testing.T) {
	code, err := run(1, []string{"sh", "-c", "for n in 1 2 3; do sleep 1 & sleep 1; wait; done; exit 7"})
	if code != 7 || err != nil {
		t.Errorf("exit code %d, %v, want 7", code, err)
	}
}
