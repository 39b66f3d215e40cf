//go:build unix

package tasks

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/hibiken/asynq"
)

// A command is given up where it can never start, and not where the system is full.
func TestExec_StartErrors(t *testing.T) {
	for number, archived := range map[syscall.Errno]bool{
		syscall.ENOENT: true, syscall.EACCES: true,
		syscall.EAGAIN: false, syscall.ENOMEM: false, syscall.EMFILE: false, syscall.ENFILE: false,
	} {
		err := startError(&os.PathError{Op: "fork/exec", Path: "/bin/it", Err: number})
		if !errors.Is(err, number) || errors.Is(err, asynq.SkipRetry) != archived {
			t.Errorf("%v: want it archived: %v", err, archived)
		}
	}
}
