package embedded

import "syscall"

// childAttributes keep a Ctrl-C at the terminal from the child, because the worker still has to put
// jobs back, and end the child if this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
