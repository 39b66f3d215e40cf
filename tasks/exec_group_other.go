//go:build !unix

package tasks

import "os/exec"

func setGroup(*exec.Cmd) {}

// killGroup kills the command alone: there are no process groups here.
func killGroup(cmd *exec.Cmd) error {
	_ = cmd.Process.Kill()
	return nil
}
