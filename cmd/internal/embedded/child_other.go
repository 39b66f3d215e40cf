//go:build !linux

package embedded

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
