package main

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/headgate/headgate/internal/cli"
)

// An interrupt ends a command that waits for lines.
func TestInterruptWhileNothingComes(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", home)
	input, lines := io.Pipe()
	defer input.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		_, _ = io.WriteString(lines, "{\"type\":\"mine\"}\n") // returns when it is read
		interrupt()
	}()
	var stderr bytes.Buffer
	code := run(ctx, []string{"-"}, cli.IO{In: input, Out: io.Discard, Err: &stderr})
	if code != 1 || !bytes.HasSuffix(stderr.Bytes(), []byte("enqueue: interrupted\n")) {
		t.Errorf("exit code %d: %s; want 1, interrupted", code, &stderr)
	}
}
