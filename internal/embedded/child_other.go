//go:build !unix

package embedded

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
