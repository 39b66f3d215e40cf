//go:build !linux

package redistest

import "syscall"

// dieWithParent is not implemented here: tests that crash leave their redis-server behind.
func dieWithParent() *syscall.SysProcAttr { return nil }
