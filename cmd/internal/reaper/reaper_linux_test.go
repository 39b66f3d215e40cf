package reaper

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

// inherit has this process inherit what its children leave behind, as process 1 does.
func inherit(t *testing.T) {
	t.Helper()
	const setChildSubreaper = 36
	if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); err != 0 {
		t.Fatal(err)
	}
}

// TestCollect_TakesOrphans: what commands have left behind is gone at the second look that
// sees it as a zombie.
func TestCollect_TakesOrphans(t *testing.T) {
	inherit(t)
	const many = 20
	for range many {
		if err := exec.Command("sh", "-c", "true & exec true").Run(); err != nil {
			t.Fatal(err)
		}
	}
	proctest.Until(t, "end of what was left", func() (bool, any) { now := listZombies(); return len(now) == many, now })
	seen := reap(nil)
	if len(seen) != many || len(listZombies()) != many {
		t.Errorf("the first look has seen %d zombies and left %d, want %d", len(seen), len(listZombies()), many)
	}
	if seen = reap(seen); len(seen) != 0 || len(listZombies()) != 0 {
		t.Errorf("the second look left %v, want none", listZombies())
	}
}

// TestCollect_LeavesOwnChildren: a program whose status is about to be read keeps it, also if a zombie
// of its process ID was seen before.
func TestCollect_LeavesOwnChildren(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exit 3")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	proctest.Until(t, "its end", func() (bool, any) { now := listZombies(); return len(now) == 1, now })
	reap(zombies{{cmd.Process.Pid, strings.Repeat("9", 9)}: true})
	if exit, ok := errors.AsType[*exec.ExitError](cmd.Wait()); !ok || exit.ExitCode() != 3 {
		t.Errorf("it ended with %v, want exit code 3", exit)
	}
}
