// Package programs has headgate's commands run in a folder of their own, for programs
// that measure them.
package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Programs are worker and enqueue, and the folder in which they run. The caches of their
// user are there, too: a worker of this user, and its Redis, are not disturbed.
type Programs struct {
	Dir string
	bin string
	env []string
}

// Install builds the commands, unless HEADGATE_COMMANDS is the folder where they are.
// Beside this process's environment they have env. The caller must Close them.
func Install(ctx context.Context, env ...string) (*Programs, error) {
	dir, err := os.MkdirTemp("", "headgate-")
	if err != nil {
		return nil, err
	}
	p := &Programs{dir, os.Getenv("HEADGATE_COMMANDS"), append(env, "HOME="+dir, "XDG_CACHE_HOME="+dir, "HEADGATE_REDIS=")}
	if p.bin != "" {
		return p, nil
	}
	p.bin = filepath.Join(dir, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", p.bin+string(filepath.Separator),
		"github.com/headgate/headgate/cmd/worker", "github.com/headgate/headgate/cmd/enqueue")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("go build: %w", err), p.Close())
	}
	return p, nil
}

// Close removes the folder.
func (p *Programs) Close() error { return os.RemoveAll(p.Dir) }

// Write makes a file in the folder.
func (p *Programs) Write(name, text string) error {
	return os.WriteFile(filepath.Join(p.Dir, name), []byte(text), 0o600)
}

// Command is one of the commands, not started yet. When the context ends it gets an
// interrupt.
func (p *Programs) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, name), args...)
	cmd.Dir, cmd.Env = p.Dir, append(os.Environ(), p.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}
