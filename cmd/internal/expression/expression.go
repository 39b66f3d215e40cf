// Package expression evaluates the formulas of headgate.yaml: the key, cost and priority of a job, and
// the ${…} parts of payloads. The language is github.com/expr-lang/expr.
//
// A job's expression can use payload, the decoded JSON, and task.type, task.queue and task.id. A
// schedule's can use tick, the time.Time of the tick in the schedule's zone. Both have host(url) and
// expr's functions, without now, so that results are repeatable, and without loops.
package expression

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/checker/nature"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// formula is one compiled expression. It is safe for concurrent use.
type formula struct {
	what    string // such as "key expression", for errors
	text    string
	vars    []string // the variables that it may use
	program *vm.Program
	names   map[string]bool // the variables that it uses
	byHost  bool            // whether it uses host(payload.url)
	isHost  bool            // whether it is just host(…)
}

// compile returns errors of one line.
func compile(what, text string, about Source) (*formula, error) {
	f := &formula{what: what, text: strings.TrimSpace(text), vars: about.words(), names: map[string]bool{}}
	if f.text == "" {
		example := "host(payload.url)"
		if f.vars[0] == "tick" {
			example = "tick.Year()"
		}
		return nil, fmt.Errorf("%s is empty: want a formula such as %s", what, example)
	}
	wrong := &forbidden{}
	program, err := expr.Compile(f.text, f.declare, hostFunction, jsonFunction, expr.DisableBuiltin("now"), expr.DisableBuiltin("toJSON"), expr.Patch(wrong))
	if err = cmp.Or(wrong.err, err); err != nil {
		return nil, f.wrap(err)
	}
	f.program = program
	node := program.Node()
	ast.Walk(&node, f)
	if call, ok := node.(*ast.CallNode); ok {
		f.isHost = call.Callee.String() == "host"
	}
	return f, nil
}

// declare declares the variables and their types. The type of decoded JSON is unknown.
func (f *formula) declare(c *conf.Config) {
	env := map[string]any{}
	for _, word := range f.vars {
		env[word] = zeros[word]
	}
	c.WithEnv(env)
	for word, zero := range env {
		if zero == nil {
			c.Env.Fields[word] = nature.Nature{}
		}
	}
}

// String returns the expression as written.
func (f *formula) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// run evaluates the formula. A missing field is nil, without an error.
func (f *formula) run(from Source) (any, error) {
	env, err := from.values(f.names)
	if err != nil {
		return nil, err
	}
	return expr.Run(f.program, env)
}

// evaluate returns the value of a formula, converted by read.
func evaluate[T any](f *formula, from Source, read func(any) (T, error)) (got T, err error) {
	value, err := f.run(from)
	if err == nil {
		got, err = read(value)
	}
	if err != nil {
		return *new(T), f.wrap(err)
	}
	return got, nil
}

// constant reports whether the value is the same for every job.
func (f *formula) constant() bool { return len(f.names) == 0 }

// maxReason bounds an error in bytes, because it can contain a value.
const maxReason = 300

// wrap adds the formula to an error. It removes expr's picture of the source, and adds the variables to
// an error about an unknown name.
func (f *formula) wrap(err error) error {
	if shown, ok := errors.AsType[*file.Error](err); ok {
		reason := strings.TrimSpace(strings.SplitN(shown.Message, "\n", 2)[0])
		reason = strings.TrimPrefix(reason, "runtime error: ")
		_, field, noField := strings.Cut(reason, "taskNames has no field ")
		switch {
		case noField:
			reason = fmt.Sprintf("task has no field %s: want task.type, task.queue or task.id", field)
		case strings.HasPrefix(reason, "unknown name"):
			reason = fmt.Sprintf("%s: want one of %s, host(…), or text in quotes", reason, strings.Join(f.vars, ", "))
		case len(reason) > maxReason:
			reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
		}
		err = errors.New(reason)
	}
	return fmt.Errorf("%s %s: %w", f.what, f.text, err)
}

// Visit collects the variables. ast.Walk calls it for each node.
func (f *formula) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		f.names[n.Value] = true
	case *ast.CallNode:
		f.byHost = f.byHost || n.Callee.String() == "host" && n.Arguments[0].String() == "payload.url"
	}
}
