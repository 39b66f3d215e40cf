// Package clitest runs scripts that use the commands as people do: worker and enqueue as processes, on
// the embedded Redis and on real ones.
//
// Scripts have these commands, and those of testscript:
//
//	here ARG…                 runs the command under test within this process, which is faster than
//	                          a process. It needs --redis, and reads only headgate.yaml of the
//	                          script's files
//	fails CODE COMMAND ARG…   requires this exit code; the command can begin with here
//	poll REGEXP COMMAND ARG…  repeats the command until its output matches; it can begin with here
//	signal NAME [N]           sends TERM, INT, HUP or KILL to background process N, or to all
//	api                       starts an HTTP server and sets $API to its URL
//	calls N [PATH]            waits until the server has had N calls
//	release                   lets $API/slow respond
//	redis [KIND]              starts Redis (plain, durable, evicting, tls, mtls, sentinel or cluster)
//	                          and sets $REDIS to its URL. A plain or durable one has the users of
//	                          docs/operating.md: $REDIS is the worker's URL, $REDIS_ENQUEUE and
//	                          $REDIS_PAGE are the others'. mtls requires a client certificate, and
//	                          sets $CERTIFICATES to a folder that has one
//	redis no-denials          fails if Redis has denied a command to the page's user. All scripts
//	                          fail at their end if Redis has denied one to the worker's user
//	redis stop|restart        stops or restarts a durable Redis
//	redis full|unlimited      sets the maxmemory of Redis to one byte, or to no limit
//	jobs STATE N [QUEUE]      waits until the queue has N jobs in this state
//
// $ROOT is the folder of the repository.
package clitest

import (
	"bytes"
	"context"
	"errors"
	"io"
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

// Run runs the scripts of testdata/script. The caller's testscript.Main provides the command under
// test as a process. The function main is the same command, for the script command `here`. Run also
// builds others, the packages of more commands.
func Run(t *testing.T, main Command, others ...string) {
	bin := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
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
			env.Setenv("ROOT", root)
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

// Command runs a command within this process.
type Command func(ctx context.Context, args []string, stdio cli.IO) (code int)

// Output is the exit code of a command, and what it printed.
type Output struct {
	Code     int
	Out, Err string
}

// Run runs the command within this process, without input.
func (c Command) Run(ctx context.Context, args ...string) Output {
	var out, stderr bytes.Buffer
	code := c(ctx, args, cli.IO{In: new(bytes.Buffer), Out: &out, Err: &stderr})
	return Output{code, out.String(), stderr.String()}
}

// execute runs a command of a script. If the command begins with here, it runs within this process.
func execute(ts *testscript.TestScript, args []string) Output {
	if args[0] != "here" {
		out := Output{}
		if err := ts.Exec(args[0], args[1:]...); err != nil {
			out.Code = -1
			if exit, ok := errors.AsType[interface {
				error
				ExitCode() int
			}](err); ok {
				out.Code = exit.ExitCode()
			}
		}
		out.Out, out.Err = ts.ReadFile("stdout"), ts.ReadFile("stderr")
		return out
	}
	args = slices.Clone(args[1:])
	if !slices.Contains(args, "--redis") {
		ts.Fatalf("here needs --redis: it runs in the folder of the test, so scripts would share an embedded Redis there")
	}
	if file := ts.MkAbs(cli.DefaultConfig); exists(file) {
		args = append(args, "--config", file)
	}
	return ts.Value("here").(Command).Run(context.Background(), args...)
}

// showOutput writes the output of a command that `here` ran to the script's stdout and stderr.
func showOutput(ts *testscript.TestScript, args []string, out Output) {
	if args[0] == "here" {
		_, _ = io.WriteString(ts.Stdout(), out.Out)
		_, _ = io.WriteString(ts.Stderr(), out.Err)
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func here(ts *testscript.TestScript, neg bool, args []string) {
	requireUsage(ts, !neg, "here ARG…")
	fails(ts, neg, append([]string{"0", "here"}, args...))
}

func fails(ts *testscript.TestScript, neg bool, args []string) {
	requireUsage(ts, !neg && len(args) > 1, "fails CODE COMMAND ARG…")
	code, err := strconv.Atoi(args[0])
	ts.Check(err)
	out := execute(ts, args[1:])
	showOutput(ts, args[1:], out)
	if out.Code != code {
		ts.Fatalf("exit code %d, want %d", out.Code, code)
	}
}

func poll(ts *testscript.TestScript, neg bool, args []string) {
	requireUsage(ts, !neg && len(args) > 1, "poll REGEXP COMMAND ARG…")
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var out Output
	proctest.Until(ts, "output like "+args[0], func() (bool, any) {
		out = execute(ts, args[1:])
		return want.MatchString(out.Out + out.Err), out.Out + out.Err
	})
	showOutput(ts, args[1:], out)
}

func requireUsage(ts *testscript.TestScript, ok bool, text string) {
	if !ok {
		ts.Fatalf("usage: %s", text)
	}
}

func signal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{
		"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL,
	}
	requireUsage(ts, !neg && (len(args) == 1 || len(args) == 2) && signals[args[0]] != nil, "signal TERM|INT|HUP|KILL [N]")
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
