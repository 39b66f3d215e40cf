package example

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Commands are worker and enqueue, and a folder in which they run. Without a
// redis in their config they share one that is within the worker.
type Commands struct {
	Folder string
	bin    string
}

// BuildCommands builds the commands, unless HEADGATE_COMMANDS is the folder where
// they are. The caller must Close them.
func BuildCommands(ctx context.Context) (*Commands, error) {
	folder, err := os.MkdirTemp("", "headgate-example-")
	if err != nil {
		return nil, err
	}
	c := &Commands{Folder: folder, bin: os.Getenv("HEADGATE_COMMANDS")}
	if c.bin != "" {
		return c, nil
	}
	c.bin = filepath.Join(folder, "bin")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", c.bin+string(filepath.Separator),
		"github.com/headgate/headgate/cmd/worker", "github.com/headgate/headgate/cmd/enqueue")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("go build: %w", err), c.Close())
	}
	return c, nil
}

// Close removes the folder.
func (c *Commands) Close() error { return os.RemoveAll(c.Folder) }

// Write makes a file in the folder.
func (c *Commands) Write(name, text string) error {
	return os.WriteFile(filepath.Join(c.Folder, name), []byte(text), 0o600)
}

// command is a command that runs in the folder, where its user's caches are, too:
// a worker of this user, and its Redis, are not disturbed.
func (c *Commands) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Dir = c.Folder
	cmd.Env = append(os.Environ(), "HOME="+c.Folder, "XDG_CACHE_HOME="+c.Folder, "HEADGATE_REDIS=")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

// A Job is a line for enqueue.
type Job struct {
	Type    string         `json:"type"`
	ID      string         `json:"id"`
	Payload map[string]any `json:"payload"`
}

// Enqueue adds jobs: "enqueue -".
func (c *Commands) Enqueue(ctx context.Context, jobs []Job) error {
	var lines bytes.Buffer
	for _, job := range jobs {
		if err := json.NewEncoder(&lines).Encode(job); err != nil {
			return err
		}
	}
	cmd := c.command(ctx, "enqueue", "-")
	cmd.Stdin = &lines
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("enqueue: %w: %s", err, said)
	}
	return nil
}

// Ended is what "worker run --log-jobs" says of an attempt at a job.
type Ended struct {
	Message string `json:"msg"`
	Outcome string
	Type    string
	ID      string
	Started time.Time
	Denials int
}

// Run has a worker run, as "worker run" does, gives it the jobs with enqueue, and
// stops it when so many attempts are done, with those that follow on others.
func (c *Commands) Run(ctx context.Context, jobs []Job, total int) ([]Ended, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cmd := c.command(ctx, "worker", "run", "--log-jobs", "--log-format", "json")
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	enqueue := sync.OnceFunc(func() {
		go func() {
			if err := c.Enqueue(ctx, jobs); err != nil {
				stop(err)
			}
		}()
	})
	var ended []Ended
	var others strings.Builder // lines
	done := 0
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var e Ended
		switch err := json.Unmarshal(lines.Bytes(), &e); {
		case err == nil && e.Message == "running jobs":
			enqueue()
		case err != nil || e.Message != "job ended":
			others.WriteString(lines.Text() + "\n")
		default:
			ended = append(ended, e)
			if e.Outcome == "done" {
				done++
			}
			if done == total {
				stop(nil) // the worker ends, and its log
			}
		}
	}
	if err := cmd.Wait(); done < total {
		return ended, fmt.Errorf("the worker did %d of %d jobs: %w\n%s", done, total, cmp.Or(context.Cause(ctx), err), others.String())
	}
	return ended, nil
}

// PerSecond is how often something happened between the first and the last time.
func PerSecond(times []time.Time) float64 {
	if len(times) < 2 {
		return 0
	}
	return float64(len(times)-1) / times[len(times)-1].Sub(times[0]).Seconds()
}
