package cli

import (
	"bytes"
	"strings"
	"testing"
)

// resetNames undoes setNames at the end of a test.
func resetNames(t *testing.T) {
	worker, enqueue := Worker, Enqueue
	t.Cleanup(func() { Worker, Enqueue = worker, enqueue })
}

func TestNames(t *testing.T) {
	resetNames(t)
	for _, test := range []struct{ command, program, worker, enqueue string }{
		{"worker", "/tmp/go-build1/b001/exe/worker", "worker", "enqueue"},
		{"enqueue", "enqueue", "worker", "enqueue"},
		{"worker", "/usr/local/bin/headgate-worker", "headgate-worker", "headgate-enqueue"},
		{"enqueue", "bin/headgate-enqueue.exe", "headgate-worker", "headgate-enqueue"},
		{"worker", "hg", "hg", "enqueue"},
	} {
		Worker, Enqueue = "worker", "enqueue"
		setNames(test.command, test.program)
		if Worker != test.worker || Enqueue != test.enqueue {
			t.Errorf("%s: %s and %s, want %s and %s", test.program, Worker, Enqueue, test.worker, test.enqueue)
		}
	}
}

func TestNamed(t *testing.T) {
	resetNames(t)
	setNames("worker", "headgate-worker")
	for text, want := range map[string]string{
		`see "worker crawls"`:                                 `see "headgate-worker crawls"`,
		`start "worker run" or "enqueue" first`:               `start "headgate-worker run" or "headgate-enqueue" first`,
		"Adds jobs.\n\n  enqueue a.jsonl\n  make | enqueue -": "Adds jobs.\n\n  headgate-enqueue a.jsonl\n  make | headgate-enqueue -",
		"The worker runs what programs enqueue. ":             "The worker runs what programs enqueue. ",
	} {
		if got := Named(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestMain_HelpNamesTheCommand(t *testing.T) {
	resetNames(t)
	setNames("worker", "headgate-worker")
	var grammar struct {
		Globals
		Run struct {
			Flag string `help:"As \"worker run\" does."`
		} `cmd:"" help:"See \"enqueue -\"."`
	}
	var out bytes.Buffer
	Main(t.Context(), Worker, `Try "worker run".`, &grammar, &grammar.Globals, []string{"run", "--help"}, IO{Out: &out, Err: &out})
	Main(t.Context(), Worker, `Try "worker run".`, &grammar, &grammar.Globals, []string{"--help"}, IO{Out: &out, Err: &out})
	for _, want := range []string{`As "headgate-worker run"`, `See "headgate-enqueue -"`, `Try "headgate-worker run"`, "Usage: headgate-worker run"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in:\n%s", want, &out)
		}
	}
}
