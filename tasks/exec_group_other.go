//go:build !unix

package tasks

import "os/exec"

// ownGroup does nothing here.
func ownGroup(*exec.Cmd) {}

// killGroup kills the command alone: there are no groups here.
func killGroup(cmd *exec.Cmd) error {
	_ = cmd.Process.Kill()
	return nil
}
