//go:build !unix

package tasks

import "os/exec"

func setGroup(*exec.Cmd) {}

// killGroup kills the command only, because this system has no process groups.
func killGroup(cmd *exec.Cmd) error {
	_ = cmd.Process.Kill()
	return nil
}
