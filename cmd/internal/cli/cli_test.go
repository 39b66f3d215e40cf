package cli

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/internal/config"
)

type testGrammar struct {
	Globals
	Fail failCommand `cmd:"" help:"Fail."`
}

// failCommand returns the error that is bound to it.
type failCommand struct{ err error }

func (c *failCommand) Run() error { return c.err }

func TestExitCodes(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name   string
		ctx    context.Context
		args   []string
		err    error
		code   int
		stderr string
	}{
		{"success", t.Context(), []string{"fail"}, nil, 0, ""},
		{"failure", t.Context(), []string{"fail"}, errors.New("no luck"), 1, "tool: no luck\n"},
		{"usage", t.Context(), []string{"fail"}, Usagef("n %d: want 1", 2), 2, "tool: n 2: want 1\n"},
		{"several", t.Context(), []string{"fail"}, errors.Join(errors.New("one"), errors.New("two")), 1, "tool: one\ntool: two\n"},
		{"config", t.Context(), []string{"fail"}, config.Errors{{File: "f", Line: 1, Column: 2, Message: "bad"}}, 2, "tool: f:1:2: bad\n"},
		{"said already", t.Context(), []string{"fail"}, BadInput, 2, ""},
		{"unknown flag", t.Context(), []string{"fail", "--no"}, nil, 2, "tool: unknown flag --no\ntool: see \"tool fail --help\"\n"},
		{"help", t.Context(), []string{"--help"}, nil, 0, ""},
		{"interrupted", canceled, []string{"fail"}, context.Canceled, 1, "tool: interrupted\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out, stderr bytes.Buffer
			g := &testGrammar{Fail: failCommand{tt.err}}
			code := Main(tt.ctx, "tool", "about", g, &g.Globals, tt.args, IO{Out: &out, Err: &stderr})
			if code != tt.code || stderr.String() != tt.stderr {
				t.Errorf("exit code %d, %q; want %d, %q", code, stderr.String(), tt.code, tt.stderr)
			}
		})
	}
}

// If the log is JSON, an error of traces is logged as a warning.
func TestLines_LogsTraceErrors(t *testing.T) {
	var out bytes.Buffer
	LogFlags{Format: "json"}.LogOutput("worker", IO{Err: &out})
	warnOfTraces(errors.New("traces export: no luck"))
	if text := out.String(); !strings.Contains(text, `"level":"WARN","msg":"cannot export traces","error":"no luck"`) {
		t.Error(text)
	}
}
