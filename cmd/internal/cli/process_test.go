package cli

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// TestEndsInTime: a command that hangs after a signal ends the process after the time of its jobs and
// two seconds, also if standard error hangs.
func TestEndsInTime(t *testing.T) {
	defer AllowJobs(0)
	for _, jobs := range []time.Duration{0, 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			AllowJobs(jobs)
			ctx, interrupt := context.WithCancel(t.Context())
			ended, stderr, began := make(chan struct{}), new(bytes.Buffer), time.Now()
			time.AfterFunc(time.Hour, interrupt)
			inTime := endsInTime(ctx, "worker", ended, stderr)
			if took := time.Since(began) - time.Hour; inTime || took != jobs+2*time.Second {
				t.Errorf("in time: %t after %s, want false after %s", inTime, took, jobs+2*time.Second)
			}
			if want := "worker: interrupted before everything had ended\n"; stderr.String() != want {
				t.Errorf("printed %q, want %q", stderr, want)
			}
			began = time.Now()
			read, hung := io.Pipe()
			endsInTime(ctx, "worker", ended, hung)
			if took := time.Since(began) - jobs; took > 2*time.Second+sayTime {
				t.Errorf("standard error hangs: it took %s more than the jobs have", took)
			}
			_ = read.Close()
			close(ended)
			if !endsInTime(ctx, "worker", ended, stderr) {
				t.Error("a command that has ended is not in time")
			}
		})
	}
}
