package tasks

import "syscall"

// Pdeathsig kills the command if its worker is killed. Otherwise it would run without a timeout,
// while another worker runs the job again.
func init() { attributes.Pdeathsig = syscall.SIGKILL }
