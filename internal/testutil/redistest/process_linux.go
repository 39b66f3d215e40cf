package redistest

import "syscall"

// dieWithParent ends redis-server with the tests, even if they crash. It has its own session, so
// that Ctrl-C does not end it before its clients.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
}
