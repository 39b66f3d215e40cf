package tasks

import "syscall"

// Pdeathsig kills the command if its worker is killed. Otherwise the command would go on without a
// timeout, while another worker runs the job again.
func init() { attributes.Pdeathsig = syscall.SIGKILL }
