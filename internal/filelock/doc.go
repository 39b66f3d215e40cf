// Package filelock tells whether a process that writes to a file is still there.
package filelock
