package clitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/internal/cli"
)

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
