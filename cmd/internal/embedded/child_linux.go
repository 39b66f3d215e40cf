package embedded

import "syscall"

// A Ctrl-C at the terminal must not end redis-server, because a stopping worker still puts jobs back.
// If this process is killed, Linux sends redis-server a SIGTERM.
func init() { childAttributes = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} }
