package tasks

import "syscall"

// Pdeathsig kills the command if its worker is killed. Without Pdeathsig the command would go on
// without a timeout while another worker runs the job.
func init() { attributes.Pdeathsig = syscall.SIGKILL }
