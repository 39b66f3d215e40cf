//go:build !linux

package reaper

import "context"

// Run does nothing, because a worker is process 1 only in a Linux container.
func Run(context.Context) {}
