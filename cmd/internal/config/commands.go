package config

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/tasks"
)

// Command is a command that exec jobs may run.
type Command struct {
	// Run is the program and its arguments. No shell runs them. Arguments can have ${…} with
	// expressions. Required.
	Run []Argument `yaml:"run"`
	// Env are the command's variables. Of the worker's variables, the command has only PATH, HOME,
	// LANG and TMPDIR. ${env:NAME} and ${file:/path} are references to secrets.
	Env map[string]string `yaml:"env"`
	tasks.Command
}

// Commands are the commands that exec jobs may run, by name.
type Commands map[string]Command

// Argument is one argument of a command.
type Argument struct{ expression.Template }

// UnmarshalText compiles the argument's expressions.
func (a *Argument) UnmarshalText(text []byte) (err error) {
	a.Template, err = expression.ParseTemplate(string(text), expression.JobVars)
	return err
}

// Handler returns a handler that runs the commands.
func (c Commands) Handler() *tasks.ExecHandler {
	h := &tasks.ExecHandler{Commands: map[string]tasks.Command{}}
	for name, command := range c {
		var env []string
		for _, key := range slices.Sorted(maps.Keys(command.Env)) {
			env = append(env, key+"="+command.Env[key])
		}
		command.Command.Args, command.Command.Env = command.args, env
		h.Commands[name] = command.Command
	}
	return h
}

// args returns the program and its arguments for a task. If an expression starts an argument with a
// hyphen, args returns an error, because the program would read the argument as an option. After an
// argument -- in Run, args accepts such a hyphen.
func (c Command) args(ctx context.Context, task *asynq.Task) ([]string, error) {
	job := JobOf(ctx, task)
	var args []string
	optionsEnded := false
	for _, a := range c.Run {
		text, err := a.Text(job)
		if err != nil {
			return nil, err
		}
		if strings.ContainsRune(text, 0) {
			return nil, fmt.Errorf("argument %s: %.40q: want text without a zero byte", a, text)
		}
		if a.StartsWithExpression() && !optionsEnded && strings.HasPrefix(text, "-") {
			return nil, fmt.Errorf("argument %s: %.40q begins with a hyphen and would be read as an option: want a -- before this argument in run, or another payload", a, text)
		}
		optionsEnded = optionsEnded || text == "--" && !a.StartsWithExpression()
		args = append(args, text)
	}
	return args, nil
}

// String returns the command with its expressions.
func (c Command) String() string {
	list := fmt.Sprint(c.Run)
	return list[1 : len(list)-1]
}

// Types returns the task types that a worker with these commands runs.
func (c Commands) Types() []string {
	types := tasks.Types()
	for name := range c {
		types = append(types, tasks.PrefixExec+name)
	}
	slices.Sort(types)
	return types
}

var (
	commandForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,50}$`)
	envForm     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (d *decoder) checkCommands(commands Commands) {
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		at, c := join("commands", name), commands[name]
		d.want(commandForm.MatchString(name), at, "%q: want 1 to 50 letters, digits, _ or -", name)
		if len(c.Run) == 0 {
			d.errorf(at+".run", "missing: want the program and its arguments, such as [convert, -resize, 200x200, --, \"${payload.file}\", out.png]")
		} else if program := c.Run[0]; !program.IsLiteral() || program.String() == "" {
			d.errorf(indexed(at+".run", 0), "%q: want the program's name, without expressions", program)
		}
		d.wantFolder(at+".dir", c.Dir)
		d.want(c.Timeout > 0, at+".timeout", "%s: want some time, such as 30s", c.Timeout)
		for _, key := range slices.Sorted(maps.Keys(c.Env)) {
			d.want(envForm.MatchString(key), join(at+".env", key), "%q: want the name of a variable, such as LANG", key)
			_, err := tasks.Secret(c.Env[key])
			d.wantOnMachine(err == nil, join(at+".env", key), "%v", err)
		}
	}
}
