// Package examples_test runs the examples.
package examples_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestExamples runs each example as a user does, but for less time. What they
// promise holds on a machine that is busy, too; how much of a limit was used does
// not, and is for tests in virtual time.
func TestExamples(t *testing.T) {
	bin := t.TempDir() + string(filepath.Separator)
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", bin, // links faster
		"../cmd/worker", "../cmd/enqueue", "./daily-quota", "./library", "./llm", "./pipeline")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	for _, tt := range []struct {
		name string
		args []string
		rows []string // what the table must say, with one blank for many
	}{
		{"daily-quota", []string{"-quota", "40", "-day", "4s", "-days", "2"}, []string{
			"day 1 40 calls", "calls beyond a day's quota 0 0 ok", "jobs done 80 80 ok", "calls made twice 0 0 ok", "denials per job",
		}},
		{"pipeline", []string{"-files", "30"}, []string{
			"exec:checksum 30 jobs 30 jobs ok", "30/s", "http:request 30 jobs 30 jobs ok", "20/s", "exec:archive 30 jobs 30 jobs ok", "15/s",
			"started before its permit 0 0 ok", "files that came through 30 30 ok", "calls made twice 0 0 ok", "denials per job",
		}},
		{"llm", []string{"-calls", "60"}, []string{
			"settled: calls answered 60 60 ok", "by estimates alone: calls answered 60 60 ok", "answered twice 0 0 ok",
			"refused by the API's own meter 0 0 ok", "limits learnt 3 3 ok", "tokens a minute 15000", "denials per call",
		}},
		{"library", nil, []string{"calls 30 30", "a second at most 50", "calls before their permit 0 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), bin+tt.name, tt.args...)
			program.Env = append(program.Environ(), "HEADGATE_COMMANDS="+bin, "REDIS_URL=")
			said, err := program.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			table := regexp.MustCompile(` +`).ReplaceAllString(string(said), " ")
			for _, row := range tt.rows {
				if !strings.Contains(table, row) {
					t.Errorf("no row %q", row)
				}
			}
			if t.Failed() || strings.Contains(table, "BROKEN") {
				t.Errorf("it says:\n%s", said)
			}
		})
	}
}
