// Package clitest runs scripts that use the commands as people do: worker and
// enqueue as processes of their own, on the embedded Redis and on real ones.
//
// Beside testscript's commands a script has
//
//	here ARG…                 runs the command under test within this process, which
//	                          costs a fraction of a process of its own: for what asks a
//	                          Redis that it names, and reads no file but headgate.yaml
//	fails CODE COMMAND ARG…   the command ends with this exit code; it may be here
//	poll REGEXP COMMAND ARG…  repeats the command until its output matches; so may this
//	signal NAME [N]           sends TERM, INT, HUP or KILL to all background
//	                          processes, or to the N-th
//	api                       starts an HTTP server and sets $API to its URL
//	calls N [PATH]            waits until the server has had N calls
//	release                   lets the calls of $API/slow be answered
//	redis [KIND]              starts Redis (plain, durable, evicting, tls, mtls,
//	                          sentinel or cluster) and sets $REDIS to its URL; mtls
//	                          asks for a certificate, and sets $CERTIFICATES to a
//	                          folder of those that it takes
//	                          a plain or durable one has the users of docs/operating.md,
//	                          and $REDIS, $REDIS_ENQUEUE and $REDIS_PAGE are of them
//	redis unrefused           the page's has wanted nothing that it may not; the
//	                          worker's is held to that at the end of each script
//	redis stop|restart        what it says, to a durable one
//	jobs STATE N [QUEUE]      the queue has so many jobs in this state
package clitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/testutil/proctest"
)

// Run runs the scripts of testdata/script. The command of the package under
// test comes from testscript.Main, and is main within this process; the others are packages
// to build.
func Run(t *testing.T, main Command, others ...string) {
	bin := t.TempDir()
	for _, pkg := range others {
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, pkg)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("TZ", "UTC")
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Values["server"] = &server{}
			env.Values["here"] = main
			return os.Mkdir(home, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"here": here, "fails": fails, "poll": poll, "signal": signal,
			"api": api, "calls": calls, "release": release,
			"redis": redisCommand, "jobs": jobs,
		},
	})
}

// Command is a command's main, without its process.
type Command func(ctx context.Context, args []string, stdio cli.IO) (code int)

func here(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "here ARG…")
	if out := runHere(ts, args); out.code != 0 {
		ts.Fatalf("exit code %d", out.code)
	}
}

type output struct {
	code           int
	stdout, stderr bytes.Buffer
}

// runHere runs the command under test, as in the script's folder, and keeps what it prints
// for the script.
func runHere(ts *testscript.TestScript, args []string) *output {
	out := attempt(ts, args)
	_, _ = ts.Stdout().Write(out.stdout.Bytes())
	_, _ = ts.Stderr().Write(out.stderr.Bytes())
	return out
}

func attempt(ts *testscript.TestScript, args []string) *output {
	if !slices.Contains(args, "--redis") {
		ts.Fatalf("here wants --redis: the folder of an embedded one is the process's")
	}
	if file := ts.MkAbs(cli.DefaultConfig); exists(file) {
		args = append(slices.Clone(args), "--config", file)
	}
	out := new(output)
	main := ts.Value("here").(Command)
	out.code = main(context.Background(), args, cli.IO{In: new(bytes.Buffer), Out: &out.stdout, Err: &out.stderr})
	return out
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func run(ts *testscript.TestScript, args []string) (code int, err error) {
	if args[0] == "here" {
		code = runHere(ts, args[1:]).code
		return code, fmt.Errorf("exit code %d", code)
	}
	err = ts.Exec(args[0], args[1:]...)
	if exit, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return exit.ExitCode(), err
	}
	return -1, err
}

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
	if !proctest.Wait(ok) {
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
