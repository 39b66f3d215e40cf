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
)

// TypeExec names the task that runs the command which its payload names. The
// type PrefixExec + NAME runs the command of that name, so that a command can
// have limits of its own. The payload of both is a JSON object, or empty:
//
//	{"command": "resize", "file": "a.png"}
//
// Only the first kind must have a command in it; all other fields are for
// Command.Args.
const (
	PrefixExec = "exec:"
	TypeExec   = PrefixExec + "command"
)

const (
	// DefaultCommandTimeout is how long a command may run if it does not say.
	DefaultCommandTimeout = time.Minute
	// DefaultMaxOutput is how many bytes a command may print if it does not say.
	DefaultMaxOutput = 64 << 10
	// maxStderr is how much of the end of its errors is kept.
	maxStderr = 1000
)

// Command is what a worker can be asked to run.
type Command struct {
	// Args gives the program and its arguments for a task: the program at least.
	// No shell sees them. A job is archived with the error that it returns. It is
	// called from many goroutines at once.
	Args func(ctx context.Context, task *asynq.Task) ([]string, error)
	// Timeout is how long it may run. Then it is killed with all that it started. The zero value
	// means tasks.DefaultCommandTimeout.
	Timeout time.Duration `yaml:"timeout"`
	// Env is its environment, NAME=value, besides PATH, HOME, LANG and TMPDIR of
	// the worker. Values can be ${env:NAME} and ${file:/path}: secrets, which are
	// hidden where the command prints them. A value is one reference or none: one
	// within other text is text.
	Env []string
	// Dir is the folder that it runs in. The zero value means the worker's.
	Dir string `yaml:"dir"`
	// MaxOutput is how many bytes it may print, not counting its standard error, of which the end
	// is kept. A command that prints more is killed. The zero value means tasks.DefaultMaxOutput.
	MaxOutput int64 `yaml:"max_output"`
}

// ExecHandler runs the commands that it has, and no others. What a command
// prints is kept as the task's result: as it is if that is JSON, or else as a
// JSON text. What becomes of the job:
//
//   - Exit code 0: done.
//   - Another one, a signal, or no end in time: a *CommandError, retried.
//   - A malformed payload, no such command or program, too much output: archived.
//   - A secret of its environment that cannot be had, or no room for one more
//     process: retried.
//
// A command can run more than once for a job, as any asynq job can. That of a worker
// that is killed dies with it on Linux, but not what it has started; elsewhere it goes
// on, while another worker runs the job. The zero value of ExecHandler archives every
// job. It is safe for concurrent use, but must not be copied, nor its
// fields changed, after its first task.
type ExecHandler struct {
	// Commands are what it can run, by name. Nothing else of a payload decides
	// which program runs, so whoever enqueues jobs gets no other.
	Commands map[string]Command

	mu      sync.Mutex
	running map[*exec.Cmd]bool
	closed  bool
}

// commandName is the command that a task is for: the one in its type, or else in its
// payload. Which commands there are only the worker knows. Other fields are not read strictly, since they are the command's.
func commandName(typename string, payload []byte) (string, error) {
	if len(bytes.TrimSpace(payload)) == 0 {
		payload = []byte("{}")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(payload, &fields); err != nil || fields == nil {
		return "", fmt.Errorf("payload %s: want a JSON object", shorten(payload))
	}
	if typename != TypeExec {
		return strings.TrimPrefix(typename, PrefixExec), nil
	}
	var name string
	if err := json.Unmarshal(fields["command"], &name); err != nil || name == "" {
		return "", fmt.Errorf("command %s: want the name of one of the worker's commands", shorten(fields["command"]))
	}
	return name, nil
}

// ProcessTask runs the task's command.
func (h *ExecHandler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	name, command, err := h.command(task)
	if err != nil {
		return presentable(err)
	}
	args, err := command.Args(ctx, task)
	if err == nil && len(args) == 0 {
		err = errors.New("no arguments: want the program at least")
	}
	if err != nil {
		return presentable(notCalled{fmt.Errorf("command %s: %w: %w", name, err, asynq.SkipRetry)})
	}
	out, err := h.run(ctx, name, command, args)
	if err != nil {
		return presentable(err)
	}
	return keepResult(ctx, task, outputResult(out), nil)
}

// command is the one that a task is for, with its name.
func (h *ExecHandler) command(task *asynq.Task) (string, Command, error) {
	name, err := commandName(task.Type(), task.Payload())
	if err != nil {
		return "", Command{}, malformed(err)
	}
	command, ok := h.Commands[name]
	if !ok {
		return "", Command{}, notCalled{fmt.Errorf("command %q: this worker has none of that name: %w", name, asynq.SkipRetry)}
	}
	return name, command, nil
}

// run runs a command and returns what it printed. The command is killed when its
// time is over, when asynq ends the job's context, when it prints too much, and by
// Close; of all but Close the context's cause tells. All that it started is killed
// with it, also when it ended well: nobody would know of it afterwards.
func (h *ExecHandler) run(ctx context.Context, name string, c Command, args []string) ([]byte, error) {
	timeout, most := cmp.Or(max(0, c.Timeout), DefaultCommandTimeout), cmp.Or(max(0, c.MaxOutput), DefaultMaxOutput)
	late := fmt.Errorf("no end within %s", duration.Exact(timeout))
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, late)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	env, hidden, err := environment(c.Env)
	if err != nil {
		return nil, notCalled{fmt.Errorf("command %s: %w", name, err)}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.Dir, env
	tooMuch := fmt.Errorf("more than %d bytes of output", most)
	stdout := &bounded{most: most, full: func() { stop(tooMuch) }}
	stderr := &tail{most: maxStderr + hidden.longest()}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = time.Second // for those that left the group and hold the output
	err = h.start(cmd)
	switch cause := context.Cause(ctx); {
	case err != nil && cause != nil && !errors.Is(err, errCloses): // its time was over before it could start
		return nil, notCalled{&CommandError{Command: name, Code: -1, Reason: cause.Error()}}
	case err != nil:
		return nil, notCalled{fmt.Errorf("command %s: %w", name, startError(err))}
	}
	err = cmd.Wait()
	_ = killGroup(cmd) // what it left running in its group
	h.ended(cmd)

	said := strings.TrimSpace(strings.ToValidUTF8(hidden.hideEnd(stderr.end, maxStderr), "\uFFFD"))
	// What stopped it says more than the signal that it ended with.
	switch cause := context.Cause(ctx); {
	case stdout.over:
		return nil, fmt.Errorf("command %s: %w: %w", name, tooMuch, asynq.SkipRetry)
	case cause != nil:
		return nil, &CommandError{Command: name, Code: -1, Reason: cause.Error(), Stderr: said}
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // that it ended well, and what it left held the output
		return []byte(hidden.hide(stdout.kept.String())), nil
	}
	wrong := &CommandError{Command: name, Code: -1, Reason: err.Error(), Stderr: said}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		wrong.Code, wrong.Reason = exit.ExitCode(), fmt.Sprintf("exit code %d", exit.ExitCode())
	}
	return nil, wrong
}

// errCloses is no fault of the job, which another worker runs.
var errCloses = errors.New("the worker stops")

// start starts a command that Close can end. After Close it starts none.
func (h *ExecHandler) start(cmd *exec.Cmd) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return errCloses
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if h.running == nil {
		h.running = map[*exec.Cmd]bool{}
	}
	h.running[cmd] = true
	return nil
}

// ended is told of a command that has ended: its process ID may be another's soon.
func (h *ExecHandler) ended(cmd *exec.Cmd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, cmd)
}

// Close kills the commands that run, with all that they started, and has those of later
// tasks fail, to be retried. It is for after the server's Shutdown: their jobs are back
// in their queues by then. It does not wait for the commands, and may be called twice.
func (h *ExecHandler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for cmd := range h.running {
		_ = killGroup(cmd)
	}
}

// environment is a command's, and the secrets in it. It is not the worker's own: that
// has the secrets of other commands, of calls and of Redis.
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
			hidden = append(hidden, secret{text, value})
		}
		env = append(env, name+"="+text)
	}
	hidden.sort()
	return env, hidden, nil
}

// startError is why a command did not start. That its program is not there, or may
// not be run, does not pass by itself; that the system has no room for it does.
func startError(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return err
}

// outputResult is what a command printed as a result: JSON as it is, other text as a
// JSON text without the ends of its last line, and bytes that are no UTF-8 as an
// object with their base64. Nothing printed is the empty text.
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

// bounded keeps what a command prints, up to a bound. Its buffer is hidden, or
// what it reads from by itself would go past Write. One goroutine of os/exec writes
// to it; it may be read after Wait.
type bounded struct {
	kept bytes.Buffer
	most int64
	over bool
	full func()
}

// Write implements io.Writer. What is too much it drops, and calls full once. To
// return an error would close the pipe, and leave it to the command to notice.
func (b *bounded) Write(p []byte) (int, error) {
	if b.over || int64(b.kept.Len()+len(p)) > b.most {
		if !b.over {
			b.over = true
			b.full()
		}
		return len(p), nil
	}
	return b.kept.Write(p)
}

// tail keeps the end of what a command prints. It may begin within a character.
type tail struct {
	end  []byte
	most int
}

func (t *tail) Write(p []byte) (int, error) {
	t.end = append(t.end, p...)
	if extra := len(t.end) - t.most; extra > 0 {
		t.end = append(t.end[:0], t.end[extra:]...)
	}
	return len(p), nil
}
