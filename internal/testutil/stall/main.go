//go:build linux

// Command stall runs a command on a machine that is too small, as an overcommitted virtual machine is:
// again and again it freezes a random third of the command's processes, and beside them it burns two
// CPUs. make slow runs test binaries under it, as go test -exec.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

func main() {
	seed := flag.Uint64("seed", 1, "seed of which processes are frozen, and how long")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: stall [-seed N] COMMAND ARG…")
		os.Exit(2)
	}
	code, err := run(*seed, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "stall:", err)
		code = 1
	}
	os.Exit(code)
}

// run runs a command under stalls, and returns its exit code.
func run(seed uint64, command []string) (code int, err error) {
	folder, err := os.MkdirTemp("", "stall-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(folder)
	lock := filepath.Join(folder, "lock")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), proctest.FreezeLock+"="+lock)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the exit code tells it
		close(ended)
	}()
	for range 2 {
		go burn()
	}
	s := &staller{root: cmd.Process.Pid, lock: lock, random: rand.New(rand.NewPCG(seed, 1)), ended: ended, interrupted: make(chan struct{})} //nolint:gosec // it has to repeat
	go func() {
		sig := <-signals
		close(s.interrupted)
		_ = cmd.Process.Signal(sig)
	}()
	err = s.run()
	<-ended
	fmt.Fprintf(os.Stderr, "stall: seed %d: %d stalls froze %d processes\n", seed, s.stalls, s.frozen)
	return cmd.ProcessState.ExitCode(), err
}

func burn() {
	for {
	}
}

// staller freezes descendants of a process.
type staller struct {
	root        int // the process whose tree is frozen
	lock        string
	random      *rand.Rand
	ended       <-chan struct{}
	interrupted chan struct{}

	stalls, frozen int
}

// run stalls processes until the command ends or the user interrupts it. Then none is frozen.
func (s *staller) run() error {
	for s.wait(400*time.Millisecond, 1600*time.Millisecond) {
		if err := s.stall(); err != nil {
			return err
		}
	}
	return nil
}

// stall freezes a third of the processes for some time. Meanwhile no test freezes one on purpose,
// because it would continue too early.
func (s *staller) stall() error {
	unlock, err := proctest.LockFreezes(s.lock)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := tree(s.root)
	if err != nil {
		return err
	}
	s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	s.stalls++
	for _, pid := range all[:(len(all)+s.random.IntN(3))/3] {
		if syscall.Kill(pid, syscall.SIGSTOP) == nil {
			defer syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // the process has ended
			s.frozen++
		}
	}
	s.wait(300*time.Millisecond, 2500*time.Millisecond)
	return nil
}

// wait waits for a random time, and reports whether the command still runs.
func (s *staller) wait(least, most time.Duration) bool {
	select {
	case <-s.ended:
		return false
	case <-s.interrupted:
		return false
	case <-time.After(least + time.Duration(s.random.Int64N(int64(most-least)))):
		return true
	}
}
