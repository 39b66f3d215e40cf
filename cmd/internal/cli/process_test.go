package cli

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestExitCode: a command that hangs after a signal ends the process after the time of its jobs and
// two seconds, also if standard error hangs.
func TestExitCode(t *testing.T) {
	defer AllowJobs(0)
	for _, jobs := range []time.Duration{0, 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			AllowJobs(jobs)
			ctx, interrupt := context.WithCancel(t.Context())
			ended, stderr, began := make(chan int, 1), new(bytes.Buffer), time.Now()
			time.AfterFunc(time.Hour, interrupt)
			code := exitCode(ctx, "worker", ended, stderr)
			if took := time.Since(began) - time.Hour; code != 1 || took != jobs+2*time.Second {
				t.Errorf("code %d after %s, want 1 after %s", code, took, jobs+2*time.Second)
			}
			if want := "worker: interrupted before everything had ended\n"; stderr.String() != want {
				t.Errorf("printed %q, want %q", stderr, want)
			}
			began = time.Now()
			read, hung := io.Pipe()
			exitCode(ctx, "worker", ended, hung)
			if took := time.Since(began) - jobs; took > 2*time.Second+sayTime {
				t.Errorf("standard error hangs: it took %s more than the jobs have", took)
			}
			_ = read.Close()
			ended <- 3
			if code := exitCode(ctx, "worker", ended, stderr); code != 3 {
				t.Errorf("code %d of a command that has ended, want 3", code)
			}
		})
	}
}
