package tasks

import "syscall"

// A command dies with its worker, even if the worker is killed: then nothing would enforce the
// command's timeout, and another worker runs its job again.
func init() { attributes.Pdeathsig = syscall.SIGKILL }
