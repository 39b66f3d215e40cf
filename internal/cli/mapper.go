package cli

import (
	"encoding"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/headgate/headgate/internal/jobspec"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// mappers read the flags whose values have a form of their own, so that their
// errors say what to write instead.
func mappers() []kong.Option {
	return slices.Concat(
		mapper(parseString), mapper(parseTerm), mapper(parseInt), mapper(jobspec.ParseDuration), mapper(jobspec.ParseTime), mapper(throttle.ParseRate),
		mapper(parseText[throttle.Kind]), mapper(parseText[lanes.Priority]), mapper(parseLevel),
	)
}

// mapper reads flags of a type, and those that point to one: kong would read these by the
// UnmarshalText of the type. The flag's name is in the error already, so the field's is left
// out.
func mapper[T any](parse func(string) (T, error)) []kong.Option {
	decode := func(c *kong.DecodeContext) (value T, err error) {
		if c.Scan.Peek().IsEOL() {
			return value, valueError("want a value after it")
		}
		var text string
		if err := c.Scan.PopValueInto("value", &text); err != nil {
			return value, err
		}
		value, err = parse(text)
		if field, ok := errors.AsType[*throttle.FieldError](err); ok {
			err = valueError(field.Value + ": " + field.Want)
		}
		return value, err
	}
	return []kong.Option{
		kong.TypeMapper(reflect.TypeFor[T](), kong.MapperFunc(func(c *kong.DecodeContext, target reflect.Value) error {
			value, err := decode(c)
			target.Set(reflect.ValueOf(value))
			return err
		})),
		kong.TypeMapper(reflect.TypeFor[*T](), kong.MapperFunc(func(c *kong.DecodeContext, target reflect.Value) error {
			value, err := decode(c)
			target.Set(reflect.ValueOf(&value))
			return err
		})),
	}
}

// valueError says all that there is to say about the value of a flag.
type valueError string

func (e valueError) Error() string { return string(e) }

func parseString(text string) (string, error) { return text, nil }

// Term is what jobs are looked for by. An empty one, as of a shell's variable that is
// not set, would select all of them.
type Term string

func parseTerm(text string) (Term, error) {
	if text == "" {
		return "", &throttle.FieldError{Field: "term", Value: `""`, Want: "want some text, or no such flag"}
	}
	return Term(text), nil
}

func parseInt(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, &throttle.FieldError{Field: "number", Value: strconv.Quote(text), Want: "want a whole number"}
	}
	return n, nil
}

func parseLevel(text string) (slog.Level, error) {
	level, ok := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[strings.ToLower(text)]
	if !ok {
		return 0, &throttle.FieldError{Field: "level", Value: strconv.Quote(text), Want: "want debug, info, warn or error"}
	}
	return level, nil
}

func parseText[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](text string) (value T, err error) {
	return value, P(&value).UnmarshalText([]byte(text))
}
