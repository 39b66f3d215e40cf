// Package cli reads the arguments of the commands, and prints their output and errors.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/version"
	"github.com/headgate/headgate/throttle"
)

// Main parses the arguments into the grammar, a struct with kong's tags, calls the Run method of
// the selected command, and returns the exit code. Run can take a context.Context, an IO, a
// *Globals and the values that the options bind. Main prints errors to stdio.Err.
func Main(ctx context.Context, name, about string, grammar any, globals *Globals, args []string, stdio IO, options ...kong.Option) (code int) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case exitPanic:
			code = int(cause)
		default:
			panic(cause)
		}
	}()
	parser, err := kong.New(grammar, append([]kong.Option{
		mapper(func(text string) (string, error) { return text, nil }), mapper(parseInt), mapper(jobspec.ParseDuration), mapper(jobspec.ParseTime), mapper(throttle.ParseRate),
		kong.Name(name), kong.Description(about),
		kong.Vars{"version": versions()},
		kong.Writers(stdio.Out, stdio.Err),
		kong.Exit(func(code int) { panic(exitPanic(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.BindTo(throttle.WithActor(ctx, actor()), (*context.Context)(nil)), kong.Bind(stdio, globals),
	}, options...)...)
	if err != nil {
		return report(stdio.Err, name, err)
	}
	if err := nameHelp(parser); err != nil {
		return report(stdio.Err, name, err)
	}
	command, err := parser.Parse(joinNegative(args))
	if err != nil {
		return report(stdio.Err, name, err)
	}
	defer beginTraces(ctx, name, stdio.Err)()
	err = command.Run()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	return report(stdio.Err, name, err)
}

var negative = regexp.MustCompile(`^-[0-9]`)

// joinNegative joins a flag and a negative number after it to one argument, such as --capacity=-1.
// kong would take the number for a short flag, and its error would not say which values are valid.
func joinNegative(args []string) (joined []string) {
	for i, arg := range args {
		if arg == "--" {
			return append(joined, args[i:]...)
		}
		if last := len(joined) - 1; negative.MatchString(arg) && last >= 0 && strings.HasPrefix(joined[last], "--") && !strings.Contains(joined[last], "=") {
			joined[last] += "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}

// asynqWords matches what asynq writes before an error of Redis.
var asynqWords = regexp.MustCompile(`^((?:line \d+|job \S+): )?(asynq: )?((UNKNOWN|INTERNAL_ERROR): )+(redis (eval|command) error: )?([A-Z]+ failed: )?`)

// report prints an error, and returns the exit code.
func report(stderr io.Writer, name string, err error) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[ExitCode](err); ok {
		return int(code)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(stderr, "%s: %s\n", name, Line(Named(asynqWords.ReplaceAllString(line, "$1"))))
	}
	if text := hint(name, err); text != "" {
		fmt.Fprintf(stderr, "%s: %s\n", name, text)
	}
	return int(codeOf(err))
}

// hint refers to --help after an error in the arguments.
func hint(name string, err error) string {
	parse, ok := errors.AsType[*kong.ParseError](err)
	_, enough := errors.AsType[valueError](err)
	if !ok || enough {
		return ""
	}
	if command := parse.Context.Selected(); command != nil {
		name += " " + command.Path()
	}
	return fmt.Sprintf("see %q", name+" --help")
}

func codeOf(err error) ExitCode {
	_, parse := errors.AsType[*kong.ParseError](err)
	_, usage := errors.AsType[*UsageError](err)
	_, file := errors.AsType[config.Errors](err)
	_, signIn := errors.AsType[*config.SignInError](err)
	if parse || usage || file || signIn {
		return BadInput
	}
	return Failed
}

// DefaultConfig is the default config file.
const DefaultConfig = "headgate.yaml"

// Globals are the flags that every command accepts.
type Globals struct {
	Config string `short:"c" placeholder:"FILE" help:"Config file (default: headgate.yaml in the current folder, if it exists)."`
	Redis  string `env:"HEADGATE_REDIS" placeholder:"URL" help:"URL of Redis, instead of the config's: redis://HOST:PORT/DB, rediss://… (TLS), unix:///PATH, redis-sentinel://HOST,HOST/MASTER or redis-cluster://HOST,HOST. Without a URL the command runs its own Redis with data in the folder .headgate beside the config: redis-server if it is installed, otherwise one in memory that is saved each second."`
	Scope  string `placeholder:"NAME" help:"Scope of limits to use, instead of the config's."`
}

// Path returns the config file.
func (g *Globals) Path() string {
	if g.Config == "" {
		return DefaultConfig
	}
	return g.Config
}

// Load reads the config file and applies the flags.
func (g *Globals) Load() (*config.Config, error) {
	c, err := config.Load(g.Path())
	if err == nil && g.Config != "" && c.FileMissing {
		err = Usagef("--config %s: file not found", g.Config)
	}
	if err != nil {
		return nil, err
	}
	if g.Redis != "" {
		own, err := config.ParseRedisURL(g.Redis)
		if err != nil {
			return nil, Usagef("--redis or HEADGATE_REDIS: %w", err)
		}
		c.Redis = own.Beside(c.Redis)
		if err := c.Redis.UseTLS(c.RedisTLS); err != nil {
			return nil, Usagef("--redis or HEADGATE_REDIS: %w, as the config has redis_tls", err)
		}
	}
	if c.Redis.IsZero() && c.RedisTLS != (config.TLS{}) {
		return nil, Usagef("redis_tls: no redis is configured: want redis: rediss://HOST:PORT, or --redis")
	}
	if g.Scope != "" {
		if err := config.CheckName(g.Scope); err != nil {
			return nil, Usagef("--scope %w", err)
		}
		c.Scope = g.Scope
	}
	return c, nil
}

// actor returns user@host of the person who runs the command, for the changelog.
func actor() string {
	name := "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

// mapper parses flags of type T. Its errors do not name a field, because kong adds the flag's name.
func mapper[T any](parse func(string) (T, error)) kong.Option {
	return kong.TypeMapper(reflect.TypeFor[T](), kong.MapperFunc(func(c *kong.DecodeContext, target reflect.Value) error {
		if c.Scan.Peek().IsEOL() {
			return valueError("want a value after it")
		}
		var text string
		if err := c.Scan.PopValueInto("value", &text); err != nil {
			return err
		}
		value, err := parse(text)
		if field, ok := errors.AsType[*throttle.FieldError](err); ok {
			return valueError(field.Value + ": " + field.Want)
		}
		target.Set(reflect.ValueOf(value))
		return err
	}))
}

// parseInt parses a decimal number. kong itself takes 010 for eight.
func parseInt(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, valueError(fmt.Sprintf("%q: want a whole number", text))
	}
	return n, nil
}

// valueError is an error that needs no reference to --help.
type valueError string

func (e valueError) Error() string { return string(e) }

// SearchTerm is a search term. An empty term is an error, because it can come from an unset shell
// variable and would select everything.
type SearchTerm string

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *SearchTerm) UnmarshalText(text []byte) error {
	*t = SearchTerm(text)
	if len(text) == 0 {
		return valueError(`"": want some text, or leave the flag out`)
	}
	return nil
}

// UsageError is an error in the user's input. The exit code is 2.
type UsageError struct{ err error }

// Usagef is fmt.Errorf for a UsageError.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

func (e *UsageError) Error() string { return e.err.Error() }

// Unwrap returns the error of fmt.Errorf.
func (e *UsageError) Unwrap() error { return e.err }

// FlagError turns an error about a field into an error about the flag with the field's name.
func FlagError(err error) error {
	if field, ok := errors.AsType[*throttle.FieldError](err); ok {
		return Usagef("--%s %s: %s", strings.ReplaceAll(field.Field, "_", "-"), field.Value, field.Want)
	}
	return err
}

// ExitCode is the error of a command that has printed its error message already. Main prints nothing
// for it.
type ExitCode int

// The exit codes of commands; 0 is success.
const (
	Failed   ExitCode = 1
	BadInput ExitCode = 2
)

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// exitPanic is the exit code with which kong ends a command. Main recovers the panic.
type exitPanic int

// versions returns the versions of the program, of Go and of asynq.
func versions() string {
	return fmt.Sprintf("%s, %s, asynq %s", version.Headgate(), runtime.Version(), version.Asynq())
}
