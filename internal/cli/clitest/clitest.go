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
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
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
