//go:build unix

package tasks

import (
	"os/exec"
	"syscall"
)

// ownGroup has the command and all that it starts be one group, unless they leave
// it. It also keeps a Ctrl-C at the worker's terminal from them: the worker ends
// them when it is time.
func ownGroup(cmd *exec.Cmd) {
	own := attributes
	cmd.SysProcAttr = &own
}

// attributes are those of each command.
var attributes = syscall.SysProcAttr{Setpgid: true}

// killGroup kills the group, of a command that was started. It is no error if nobody
// is left in it.
func killGroup(cmd *exec.Cmd) error {
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != syscall.ESRCH {
		return err
	}
	return nil
}
