package tasks

import "syscall"

// A command dies with its worker, also with one that is killed: nobody would keep its
// Timeout, and another worker runs its job again.
func init() { attributes.Pdeathsig = syscall.SIGKILL }
