//go:build !linux

package reaper

import "context"

// Run does nothing: containers are Linux.
func Run(context.Context) {}
