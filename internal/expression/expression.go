// Package expression evaluates the small formulas of headgate.yaml: which key
// a job counts under, what it costs, how urgent it is, and the ${…} parts of a
// schedule's payload. The language is github.com/expr-lang/expr.
//
// A job's expression sees payload, the job's payload as decoded JSON, and
// task.type, task.queue and task.id. A schedule's sees tick, the time.Time of
// the tick in the entry's zone. Both have expr's own functions (but not now,
// so that the same job always gives the same answer) and host(url).
package expression

import (
	"errors"
	"fmt"
	"reflect"
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
	bounded bool            // whether it has a loop or a function that may make much of little
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
	patterns := &ownPatterns{}
	options := []expr.Option{f.knows, hostFunction, expr.DisableBuiltin("now"), expr.Patch(patterns)}
	// As it was written it says what is wrong with it; as it runs it pays for what it does.
	written, err := expr.Compile(f.text, options...)
	if err != nil {
		return nil, f.wrap(err)
	}
	if patterns.foreign != nil {
		return nil, f.wrap(fmt.Errorf("matches %s: want the pattern in quotes: a job does not bring its own", patterns.foreign))
	}
	node := written.Node()
	ast.Walk(&node, f)
	if call, ok := node.(*ast.CallNode); ok {
		f.isHost = call.Callee.String() == "host"
	}
	if f.program = written; f.bounded {
		if f.program, err = expr.Compile(f.text, append(options, payments, expr.Patch(payer{}))...); err != nil {
			return nil, f.wrap(err)
		}
	}
	return f, nil
}

// knows tells the compiler the names and their types. That of what JSON has nobody knows.
func (f *formula) knows(c *conf.Config) {
	env := map[string]any{budgetName: &budget{}}
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

// run evaluates the formula. A missing field gives nil, without an error. What it makes,
// and what it goes through for that, is bounded.
func (f *formula) run(from Source) (any, error) {
	env, err := from.values(f.names)
	if err != nil {
		return nil, err
	}
	left := &budget{maxSpent}
	if f.bounded {
		env[budgetName] = left
	}
	value, err := expr.Run(f.program, env)
	if err == nil && f.bounded {
		err = left.whole(reflect.ValueOf(value), 0) // what is in it twice is written twice
	}
	return value, err
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
		case reason == "memory budget exceeded": // expr's own, for lists
			reason = errSpent.Error()
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
	case *ast.BuiltinNode, *ast.PredicateNode:
		f.bounded = true
	}
}

// ownPatterns finds a regular expression that does not stand in the formula: a short one that
// others write can take as long as they please.
type ownPatterns struct{ foreign ast.Node }

// Visit is called for every part of a formula as it was written.
func (o *ownPatterns) Visit(node *ast.Node) {
	if n, ok := (*node).(*ast.BinaryNode); ok && n.Operator == "matches" {
		if _, written := n.Right.(*ast.StringNode); !written {
			o.foreign = n.Right
		}
	}
}
