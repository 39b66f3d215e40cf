// Package reaper collects the processes that a worker inherits as the first process of a
// container: what a command has left behind becomes a child of process 1, and stays as a zombie
// until its status is read.
package reaper

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// each is how often Run looks for zombies. A zombie costs nothing but its process ID.
const each = 10 * time.Second

// Run collects what this process inherits until ctx ends, if it is process 1.
func Run(ctx context.Context) {
	if os.Getpid() != 1 {
		return
	}
	tick := time.NewTicker(each)
	defer tick.Stop()
	var seen zombies
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			seen = collect(seen)
		}
	}
}

// A zombie is a child that has ended and whose status is not read.
type zombie struct {
	pid   int
	start string // tells it from a later process with the same ID
}

type zombies map[zombie]bool

// collect reads the status of each zombie that the last look has seen already, and returns the
// others. A program that this process has started is waited for, so it is never seen twice.
func collect(seen zombies) zombies {
	next := zombies{}
	for z := range list() {
		if seen[z] {
			_, _ = syscall.Wait4(z.pid, nil, syscall.WNOHANG, nil)
		} else {
			next[z] = true
		}
	}
	return next
}

// list returns the zombies of this process, as far as the system tells: see proc_pid_stat(5).
func list() zombies {
	found := zombies{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, _ := os.ReadFile(file) // fails if the process has just gone
		_, after, _ := strings.Cut(string(text), ") Z ")
		fields := strings.Fields(after) // from the fourth on
		if len(fields) < 19 || fields[0] != fmt.Sprint(os.Getpid()) {
			continue
		}
		z := zombie{start: fields[18]}
		if _, err := fmt.Sscanf(file, "/proc/%d/stat", &z.pid); err == nil {
			found[z] = true
		}
	}
	return found
}
