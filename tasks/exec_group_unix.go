//go:build unix

package tasks

import (
	"os/exec"
	"syscall"
)

// setGroup starts the command in a process group of its own, so that killGroup can kill the whole
// group. A Ctrl-C at the worker's terminal does not reach the command.
func setGroup(cmd *exec.Cmd) {
	own := attributes
	cmd.SysProcAttr = &own
}

var attributes = syscall.SysProcAttr{Setpgid: true}

// killGroup kills the process group of a started command. If the group has no process, killGroup
// returns nil.
func killGroup(cmd *exec.Cmd) error {
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != syscall.ESRCH {
		return err
	}
	return nil
}
