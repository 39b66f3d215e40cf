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
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// formula is one compiled expression. It is safe for concurrent use.
type formula struct {
	what    string // such as "key expression", for errors
	text    string
	program *vm.Program
	names   map[string]bool
	byHost  bool // whether it takes the host of payload.url
	bounded bool // whether it has a loop or a function that may make much of little
}

// compile reports what is wrong with the text, as one line. env is a struct
// whose expr tags are the names that the text may use.
func compile(what, text string, env environment) (*formula, error) {
	f := &formula{what: what, text: strings.TrimSpace(text), names: map[string]bool{}}
	if f.text == "" {
		return nil, fmt.Errorf("%s is empty: want a formula such as %s", what, example(env))
	}
	patterns := &ownPatterns{}
	options := []expr.Option{expr.Env(env), hostFunction, expr.DisableBuiltin("now"), expr.Patch(patterns)}
	// As it was written it says what is wrong with it; as it runs it pays for what it does.
	written, err := expr.Compile(f.text, options...)
	if err != nil {
		return nil, f.wrap(explain(err, env))
	}
	if patterns.foreign != nil {
		return nil, f.wrap(fmt.Errorf("matches %s: want the pattern in quotes: a job does not bring its own", patterns.foreign))
	}
	node := written.Node()
	ast.Walk(&node, f)
	if f.program = written; f.bounded {
		if f.program, err = expr.Compile(f.text, append(options, payments, expr.Patch(payer{}))...); err != nil {
			return nil, f.wrap(explain(err, env))
		}
	}
	return f, nil
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
func (f *formula) run(env environment) (any, error) {
	var left *budget
	if f.bounded {
		left = &budget{maxSpent}
	}
	value, err := expr.Run(f.program, env.with(left))
	if err == nil && f.bounded {
		err = left.whole(reflect.ValueOf(value), 0) // what is in it twice is written twice
	}
	if err != nil {
		return nil, explain(err, env)
	}
	return value, nil
}

// answer is what a formula gives for what it sees, as read takes it.
func answer[T any](f *formula, see func(*formula) (environment, error), read func(any) (T, error)) (T, error) {
	var got T
	var value any
	env, err := see(f)
	if err == nil {
		value, err = f.run(env)
	}
	if err == nil {
		got, err = read(value)
	}
	if err != nil {
		return *new(T), f.wrap(err)
	}
	return got, nil
}

type environment interface {
	// with is the environment with the budget of one run in it.
	with(left *budget) any
}

func (f *formula) wrap(err error) error {
	return fmt.Errorf("%s %s: %w", f.what, f.text, err)
}

// constant is whether the formula gives the same value for every job.
func (f *formula) constant() bool { return len(f.names) == 0 }

// mostSaid is how long a reason may be, in bytes: the value that was wrong may be in it.
const mostSaid = 300

// explain is expr's error without its picture of the source, and with the
// names that exist where one does not.
func explain(err error, env any) error {
	shown, ok := errors.AsType[*file.Error](err)
	if !ok {
		return err
	}
	reason := strings.TrimSpace(strings.SplitN(shown.Message, "\n", 2)[0])
	reason = strings.TrimPrefix(reason, "runtime error: ")
	if reason == "memory budget exceeded" { // expr's own, for lists
		return errSpent
	}
	if _, field, ok := strings.Cut(reason, "taskEnv has no field "); ok {
		return fmt.Errorf("task has no field %s: want task.type, task.queue or task.id", field)
	}
	if strings.HasPrefix(reason, "unknown name") {
		return fmt.Errorf("%s: want one of %s, or text in quotes", reason, strings.Join(known(env), ", "))
	}
	if len(reason) > mostSaid {
		reason = strings.ToValidUTF8(reason[:mostSaid], "") + "…"
	}
	return errors.New(reason)
}

func known(env any) []string {
	var found []string
	for _, field := range reflect.VisibleFields(reflect.TypeOf(env)) {
		if name := field.Tag.Get("expr"); name != "" && name != budgetName {
			found = append(found, name)
		}
	}
	return append(found, "host(…)")
}

func example(env any) string {
	if _, ok := env.(tickEnv); ok {
		return "tick.Year()"
	}
	return "host(payload.url)"
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
