//go:build !linux

package redistest

import "syscall"

// dieWithParent has no counterpart here: tests that crash leave their
// redis-server behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
