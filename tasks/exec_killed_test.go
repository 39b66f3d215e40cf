//go:build linux

package tasks

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A worker that is killed takes its command with it: its job runs again elsewhere. The
// worker is this test in a process of its own.
func TestExec_KilledWorker_KillsCommand(t *testing.T) {
	if os.Getenv("HEADGATE_KILLED_WORKER") != "" {
		h := shell("echo $$ >/proc/$PPID/fd/1; exec sleep 1000", nil)
		t.Log(h.process(t, "{}"))
		return
	}
	worker := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "TestExec_KilledWorker_KillsCommand$")
	worker.Env = append(os.Environ(), "HEADGATE_KILLED_WORKER=yes")
	out, err := worker.StdoutPipe()
	if err == nil {
		err = worker.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	pid, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_ = worker.Process.Kill()
	_ = worker.Wait()
	for gone := false; !gone && t.Context().Err() == nil; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", strings.TrimSpace(pid)))
		gone = err != nil || strings.Contains(string(stat), ") Z ")
	}
}
