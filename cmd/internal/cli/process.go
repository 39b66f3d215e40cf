package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
	_ "time/tzdata" // slim images have no time zones, or none with old names such as US/Pacific

	"github.com/headgate/headgate/cmd/internal/embedded"
	"github.com/headgate/headgate/internal/redishealth"
)

const (
	// stopTime is how long a command may take to end after the first signal. Then the process ends
	// without it, because Redis, a disk or a terminal may hang.
	stopTime = 2 * time.Second
	// sayTime bounds the time that standard error takes for the last line.
	sayTime = 100 * time.Millisecond
)

// jobTime is the duration of AllowJobs. A process has one command.
var jobTime atomic.Int64

// AllowJobs adds d to the time that the command has to end after the first signal, so that running
// jobs can finish.
func AllowJobs(d time.Duration) { jobTime.Store(int64(d)) }

// Process runs a command, worker or enqueue, and exits with its code. The first signal cancels the context. If the
// command does not end in time after that, Process exits with the code Failed. A second signal ends
// the process at once.
func Process(command string, execute func(ctx context.Context, args []string, stdio IO) (code int)) {
	setNames(command, os.Args[0])
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals)
		cancel()
	}()
	code, ended := int(Failed), make(chan struct{})
	go func() {
		code = execute(ctx, os.Args[1:], IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
		close(ended)
	}()
	if !endsInTime(ctx, filepath.Base(os.Args[0]), ended, os.Stderr) {
		os.Exit(int(Failed))
	}
	os.Exit(code)
}

// endsInTime waits for the end of a command, and reports whether it has come in time after the end of
// ctx. If it has not, endsInTime saves the jobs of an embedded Redis. A pause in which the machine
// stopped this process is not time that the command had.
func endsInTime(ctx context.Context, name string, ended <-chan struct{}, stderr io.Writer) bool {
	select {
	case <-ended:
		return true
	case <-ctx.Done():
	}
	if redishealth.Await(ended, time.Duration(jobTime.Load())+stopTime) {
		return true
	}
	embedded.SaveAll()
	said := make(chan struct{})
	go func() {
		fmt.Fprintf(stderr, "%s: interrupted before everything had ended\n", name)
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(sayTime):
	}
	return false
}
