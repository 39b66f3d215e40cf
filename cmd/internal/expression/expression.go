// Package expression evaluates the small formulas of headgate.yaml: which key
// a job counts under, what it costs, how urgent it is, and the ${…} parts of a
// schedule's payload. The language is github.com/expr-lang/expr.
//
// A job's expression sees payload, the job's payload as decoded JSON, and
// task.type, task.queue and task.id. A schedule's sees tick, the time.Time of
// the tick in the entry's zone. Both have expr's own functions (but not now,
// so that the same job always gives the same answer, and no loops) and host(url).
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
	sees    []string // the names that it may use
	program *vm.Program
	names   map[string]bool // those that it uses
	byHost  bool            // whether it takes the host of payload.url
	isHost  bool            // whether it is host(…) and nothing else
}

// compile reports what is wrong with the text, as one line.
func compile(what, text string, about Source) (*formula, error) {
	f := &formula{what: what, text: strings.TrimSpace(text), sees: about.words(), names: map[string]bool{}}
	if f.text == "" {
		example := "host(payload.url)"
		if f.sees[0] == "tick" {
			example = "tick.Year()"
		}
		return nil, fmt.Errorf("%s is empty: want a formula such as %s", what, example)
	}
	wrong := &refused{}
	program, err := expr.Compile(f.text, f.knows, hostFunction, jsonFunction, expr.DisableBuiltin("now"), expr.DisableBuiltin("toJSON"), expr.Patch(wrong))
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

// knows tells the compiler the names and their types. That of what JSON has nobody knows.
func (f *formula) knows(c *conf.Config) {
	env := map[string]any{}
	for _, word := range f.sees {
		env[word] = zeros[word]
	}
	c.WithEnv(env)
	for word, zero := range env {
		if zero == nil {
			c.Env.Fields[word] = nature.Nature{}
		}
	}
}

// String is the expression as it was written.
func (f *formula) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// run evaluates the formula. A missing field gives nil, without an error.
func (f *formula) run(from Source) (any, error) {
	env, err := from.values(f.names)
	if err != nil {
		return nil, err
	}
	return expr.Run(f.program, env)
}

// answer is what a formula gives for what it sees, as read takes it.
func answer[T any](f *formula, from Source, read func(any) (T, error)) (got T, err error) {
	value, err := f.run(from)
	if err == nil {
		got, err = read(value)
	}
	if err != nil {
		return *new(T), f.wrap(err)
	}
	return got, nil
}

// constant is whether the formula gives the same value for every job.
func (f *formula) constant() bool { return len(f.names) == 0 }

// mostSaid is how long a reason may be, in bytes: the value that was wrong may be in it.
const mostSaid = 300

// wrap is an error with the formula, and expr's own without its picture of the source, but
// with the names that exist where one does not.
func (f *formula) wrap(err error) error {
	if shown, ok := errors.AsType[*file.Error](err); ok {
		reason := strings.TrimSpace(strings.SplitN(shown.Message, "\n", 2)[0])
		reason = strings.TrimPrefix(reason, "runtime error: ")
		_, field, noField := strings.Cut(reason, "taskNames has no field ")
		switch {
		case noField:
			reason = fmt.Sprintf("task has no field %s: want task.type, task.queue or task.id", field)
		case strings.HasPrefix(reason, "unknown name"):
			reason = fmt.Sprintf("%s: want one of %s, host(…), or text in quotes", reason, strings.Join(f.sees, ", "))
		case len(reason) > mostSaid:
			reason = strings.ToValidUTF8(reason[:mostSaid], "") + "…"
		}
		err = errors.New(reason)
	}
	return fmt.Errorf("%s %s: %w", f.what, f.text, err)
}

// Visit is called for every part of a formula.
func (f *formula) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		f.names[n.Value] = true
	case *ast.CallNode:
		f.byHost = f.byHost || n.Callee.String() == "host" && n.Arguments[0].String() == "payload.url"
	}
}
