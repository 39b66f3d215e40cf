package embedded

import "syscall"

// redis-server gets no Ctrl-C, because a stopping worker still uses it. If the worker dies, redis-server gets SIGTERM.
func init() { childAttributes = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} }
