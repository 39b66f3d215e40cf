package tasks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/strictjson"
)

// PrefixExec begins the type of a task that runs a command: exec:resize runs the command resize.
// The task's payload is a JSON object or empty. Only Command.Args uses its fields.
const PrefixExec = "exec:"

// The defaults of Command, and the maximum of CommandError.Stderr. Sizes are in bytes.
const (
	DefaultCommandTimeout = time.Minute
	DefaultMaxOutput      = 64 << 10
	maxStderr             = 1000
)

// Command is a command that a worker offers.
type Command struct {
	// Args returns the program and its arguments for a task. They are not passed to a shell. An
	// error archives the job. Args must be safe for concurrent use.
	Args func(ctx context.Context, task *asynq.Task) ([]string, error)
	// Timeout is how long the command may run. After this time the worker kills the command and all
	// that it started. The zero value means tasks.DefaultCommandTimeout.
	Timeout time.Duration `yaml:"timeout"`
	// Env is the environment, as NAME=value, in addition to the worker's PATH, HOME, LANG and
	// TMPDIR. A value can be a secret, ${env:NAME} or ${file:/path}, which is hidden if the command
	// prints it. A reference within other text is not replaced.
	Env []string
	// Dir is the folder that the command runs in. The zero value means the worker's folder.
	Dir string `yaml:"dir"`
	// MaxOutput is the maximum size of the command's standard output in bytes. A command that
	// prints more is killed. Of the standard error only the end is kept. The zero value means
	// tasks.DefaultMaxOutput.
	MaxOutput int64 `yaml:"max_output"`
}

// ExecHandler runs commands. A command's output becomes the task's result: valid JSON unchanged,
// other text as a JSON string, and bytes that are not UTF-8 as {"base64": "…"}. The job ends as
// follows:
//
//   - Exit code 0: done.
//   - Another exit code, a signal, or a timeout: a *CommandError, retried.
//   - A payload that is no JSON object, or too much output: archived.
//   - A command or program that this worker does not have: put back for another worker, and archived
//     after the server's [scheduler.WithUnknownFor], or at once by a plain asynq server.
//   - A missing secret, or too many processes on the machine: retried.
//
// A command can run more than once for a job. If its worker is killed, Linux also kills the
// command, but not the processes that the command has started. On other systems the command
// continues while another worker runs the job. ExecHandler is safe for concurrent use.
type ExecHandler struct {
	// Commands are the commands that the handler can run, by name.
	Commands map[string]Command

	running sync.RWMutex // read-locked by each running command
}

// validateCommand returns an error if the payload of a command is neither empty nor a JSON object.
func validateCommand(payload []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(payload, &fields); len(bytes.TrimSpace(payload)) > 0 && (err != nil || fields == nil) {
		return fmt.Errorf("payload %s: want a JSON object", strictjson.Shorten(payload))
	}
	return nil
}

// ProcessTask runs the task's command.
func (h *ExecHandler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	name, command, err := h.command(task)
	if err != nil {
		return presentable(err)
	}
	args, err := command.Args(ctx, task)
	if err == nil && len(args) == 0 {
		err = errors.New("no arguments: want at least the program")
	}
	if err != nil {
		return presentable(notCalled(fmt.Errorf("command %s: %w: %w", name, err, asynq.SkipRetry)))
	}
	out, err := h.run(ctx, name, command, args)
	if err != nil {
		return presentable(err)
	}
	return keepResult(ctx, task, outputResult(out), nil)
}

// Check returns the error with which ProcessTask would refuse the task: see HTTPHandler.Check.
func (h *ExecHandler) Check(task *asynq.Task) error {
	_, _, err := h.command(task)
	return presentable(err)
}

// command returns the name of the task's command, and the command.
func (h *ExecHandler) command(task *asynq.Task) (string, Command, error) {
	if err := validateCommand(task.Payload()); err != nil {
		return "", Command{}, malformed(err)
	}
	name := strings.TrimPrefix(task.Type(), PrefixExec)
	command, ok := h.Commands[name]
	if !ok {
		return "", Command{}, unable(fmt.Errorf("command %q: this worker has none of that name: %w", name, asynq.SkipRetry))
	}
	return name, command, nil
}

// outputTimeout is how long the output of a command may stay open after the command has ended.
const outputTimeout = time.Second

// run runs a command and returns its output. It kills the command's process group after the
// timeout, when the job's context ends, and when the command prints too much.
func (h *ExecHandler) run(ctx context.Context, name string, c Command, args []string) ([]byte, error) {
	timeout, maxOutput := cmp.Or(max(0, c.Timeout), DefaultCommandTimeout), cmp.Or(max(0, c.MaxOutput), DefaultMaxOutput)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no end within %s", duration.Exact(timeout)))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	h.running.RLock()
	defer h.running.RUnlock()
	env, hidden, err := environment(c.Env)
	if err != nil {
		return nil, notCalled(fmt.Errorf("command %s: %w", name, err))
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, env
	tooMuch := fmt.Errorf("more than %d bytes of output", maxOutput)
	stdout := &commandOutput{maxSize: int(maxOutput), onFull: func() { stop(tooMuch) }}
	stderr := &commandOutput{maxSize: maxStderr + hidden.longest()}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	setGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = outputTimeout // a process outside of the group may keep the output open
	if err := cmd.Start(); err != nil {
		if cause := context.Cause(ctx); cause != nil { // the context ended before the start
			return nil, notCalled(&CommandError{Command: name, Code: -1, Reason: cause.Error()})
		}
		return nil, startError(fmt.Errorf("command %s: %w", name, err))
	}
	err = cmd.Wait()
	_ = killGroup(cmd) // kills processes that the command left running

	wrong := &CommandError{Command: name, Code: -1}
	wrong.Stderr = strings.TrimSpace(strings.ToValidUTF8(hidden.hideEnd(stderr.kept, maxStderr), "\uFFFD"))
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch cause := context.Cause(ctx); { // the cause says why run killed the command
	case errors.Is(cause, tooMuch):
		return nil, fmt.Errorf("command %s: %w: %w", name, tooMuch, asynq.SkipRetry)
	case cause != nil:
		wrong.Reason = cause.Error()
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // after ErrWaitDelay the exit code is 0, too
		return []byte(hidden.hide(string(stdout.kept))), nil
	case exited && exit.Exited():
		wrong.Code, wrong.Reason = exit.ExitCode(), fmt.Sprintf("exit code %d", exit.ExitCode())
	default:
		wrong.Reason = err.Error()
	}
	return nil, wrong
}

// Wait waits until the running commands have ended. Call Wait after the server's Shutdown, which
// ends the jobs' contexts and so kills their commands.
func (h *ExecHandler) Wait() {
	h.running.Lock()
	defer h.running.Unlock()
}

// environment returns a command's environment and the secrets in it. The environment has own and
// four of the worker's variables. The worker's other variables may hold secrets of other commands.
func environment(own []string) ([]string, secrets, error) {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	var hidden secrets
	for _, pair := range own {
		name, value, _ := strings.Cut(pair, "=")
		text, err := Secret(value)
		if err != nil {
			return nil, nil, err
		}
		if text != value {
			hidden.add(text, value)
		}
		env = append(env, name+"="+text)
	}
	return env, hidden, nil
}

// startError returns the error of a command that did not start. If the program does not exist here or
// is not executable, only another worker can run it.
func startError(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return unable(fmt.Errorf("%w: %w", err, asynq.SkipRetry))
	}
	return notCalled(err)
}

// outputResult returns a command's output as a result: see ExecHandler.
func outputResult(out []byte) any {
	text := bytes.TrimSpace(out)
	switch {
	case !utf8.Valid(out):
		return map[string]string{"base64": base64.StdEncoding.EncodeToString(out)}
	case json.Valid(text):
		return json.RawMessage(text)
	}
	return strings.TrimRight(string(out), "\r\n")
}

// commandOutput keeps up to maxSize bytes of a command's output. With onFull, it keeps the first
// bytes, and Write calls onFull if the output is longer. Without onFull, it keeps the last bytes.
// Write returns no error, because an error would close the pipe and leave the command running.
type commandOutput struct {
	kept    []byte
	maxSize int
	onFull  func()
}

// Write implements io.Writer.
func (o *commandOutput) Write(p []byte) (int, error) {
	o.kept = append(o.kept, p...)
	switch extra := len(o.kept) - o.maxSize; {
	case extra <= 0:
	case o.onFull != nil:
		o.kept = o.kept[:o.maxSize]
		o.onFull()
	default:
		o.kept = append(o.kept[:0], o.kept[extra:]...)
	}
	return len(p), nil
}
