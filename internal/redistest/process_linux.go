package redistest

import "syscall"

// dieWithParent ends redis-server also when the tests crash or time out, where
// nobody is left to close it.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
