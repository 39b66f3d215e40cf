package redistest

import "syscall"

// dieWithParent ends redis-server also when the tests crash or time out, where
// nobody is left to close it. In a session of its own an interrupt from the
// keyboard does not end it before those who use it have stopped.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
}
