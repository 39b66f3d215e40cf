//go:build unix

package tasks

import (
	"os/exec"
	"syscall"
)

// ownGroup has the command and all that it starts be one group.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the group. It is no error if nobody is left in it.
func killGroup(cmd *exec.Cmd) error {
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != syscall.ESRCH {
		return err
	}
	return nil
}
