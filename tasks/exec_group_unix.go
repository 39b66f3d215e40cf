//go:build unix

package tasks

import (
	"os/exec"
	"syscall"
)

// setGroup starts the command in a process group of its own, so that the whole group can be killed,
// and a Ctrl-C at the worker's terminal does not reach it.
func setGroup(cmd *exec.Cmd) {
	own := attributes
	cmd.SysProcAttr = &own
}

var attributes = syscall.SysProcAttr{Setpgid: true}

// killGroup kills the group of a command that was started. An empty group is no error.
func killGroup(cmd *exec.Cmd) error {
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != syscall.ESRCH {
		return err
	}
	return nil
}
