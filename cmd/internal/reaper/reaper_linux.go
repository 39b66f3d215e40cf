// Package reaper reaps orphaned processes if a worker is process 1 of a container. Orphans become
// children of process 1. After their end they stay zombies until process 1 reads their status.
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

const searchInterval = 10 * time.Second

// Run reaps orphans until ctx ends, if this is process 1.
func Run(ctx context.Context) {
	if os.Getpid() != 1 {
		return
	}
	tick := time.NewTicker(searchInterval)
	defer tick.Stop()
	var seen zombies
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			seen = reap(seen)
		}
	}
}

// zombie is an ended child whose status has not been read.
type zombie struct {
	pid   int
	start string // start time, which tells the zombie from a later process with the same ID
}

type zombies map[zombie]bool

// reap reaps the zombies that the previous call has seen, and returns the others. A process
// that this program started is seen once at most, because the code that started it waits for it.
func reap(seen zombies) zombies {
	next := zombies{}
	for z := range listZombies() {
		if seen[z] {
			_, _ = syscall.Wait4(z.pid, nil, syscall.WNOHANG, nil)
		} else {
			next[z] = true
		}
	}
	return next
}

// listZombies returns the zombies among this process's children: see proc_pid_stat(5).
func listZombies() zombies {
	found := zombies{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, _ := os.ReadFile(file) // fails if the process has just gone
		_, after, _ := strings.Cut(string(text), ") Z ")
		fields := strings.Fields(after) // from the fourth field on, which is the parent's ID; the 22nd field is the start time
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
