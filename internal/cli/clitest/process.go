package clitest

import (
	"os"
	"regexp"
	"strconv"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/internal/running"
)

func usage(ts *testscript.TestScript, ok bool, text string) {
	if !ok {
		ts.Fatalf("usage: %s", text)
	}
}

func fails(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 1, "fails CODE COMMAND ARG…")
	code, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got, err := run(ts, args[1:]); got != code {
		ts.Fatalf("ended with %v, want exit code %d", err, code)
	}
}

func poll(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 1, "poll REGEXP COMMAND ARG…")
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	if args[1] == "here" {
		last := new(output)
		until(ts, "output like "+args[0], func() bool {
			last = attempt(ts, args[2:])
			return want.MatchString(last.stdout.String() + last.stderr.String())
		})
		_, _ = ts.Stdout().Write(last.stdout.Bytes())
		_, _ = ts.Stderr().Write(last.stderr.Bytes())
		return
	}
	until(ts, "output like "+args[0], func() bool {
		_ = ts.Exec(args[1], args[2:]...) // it may fail until it is time
		return want.MatchString(ts.ReadFile("stdout") + ts.ReadFile("stderr"))
	})
}

func until(ts *testscript.TestScript, what string, ok func() bool) {
	if !running.Wait(ok) {
		ts.Fatalf("no %s in time", what)
	}
}

func signal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{
		"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL,
	}
	usage(ts, !neg && (len(args) == 1 || len(args) == 2) && signals[args[0]] != nil, "signal TERM|INT|HUP|KILL [N]")
	processes := ts.BackgroundCmds()
	if len(args) == 2 {
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		processes = processes[n-1 : n]
	}
	for _, cmd := range processes {
		ts.Check(cmd.Process.Signal(signals[args[0]]))
	}
}
