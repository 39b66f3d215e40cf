package embedded

import "syscall"

// A Ctrl-C at the terminal must not end the child, because the worker still puts jobs back. A kill
// of this process must end it.
func init() { childAttributes = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} }
