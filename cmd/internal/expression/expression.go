// Package expression evaluates the expressions of headgate.yaml: the key, cost and priority of a
// job, and the ${…} parts of payloads. The language is github.com/expr-lang/expr.
//
// An expression of a job can use payload, the decoded JSON, and task.type, task.queue and task.id.
// An expression of a finished job can also use result. An expression of a schedule can use tick,
// the time.Time of the tick in the schedule's zone. All can use host(url) and the functions of
// expr, except now, because results must be repeatable, and except what could be slow, such as
// loops.
package expression

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/checker/nature"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// program is a compiled expression. It is safe for concurrent use.
type program struct {
	what   string // such as "key expression", for errors
	text   string
	vars   []string // the variables that it may use
	code   *vm.Program
	names  map[string]bool // the variables that it uses
	byHost bool            // whether it uses host(payload.url)
	wrong  error           // Visit's error about the first construct that it rejects; nil if there is none
}

// compile compiles an expression that may use the variables vars. what names the kind of expression
// in errors, which have one line.
func compile(what, text string, vars []string) (*program, error) {
	p := &program{what: what, text: strings.TrimSpace(text), vars: vars, names: map[string]bool{}}
	if p.text == "" {
		example := "host(payload.url)"
		if vars[0] == "tick" {
			example = "tick.Year()"
		}
		return nil, fmt.Errorf("%s is empty: want an expression such as %s", what, example)
	}
	var err error
	p.code, err = expr.Compile(p.text, p.declare, hostFunction, jsonFunction, expr.DisableBuiltin("now"), expr.DisableBuiltin("toJSON"), expr.Patch(p))
	if err = cmp.Or(p.wrong, err); err != nil {
		return nil, p.wrap(err)
	}
	return p, nil
}

// declare declares the variables and their types. The type of decoded JSON is unknown.
func (p *program) declare(c *conf.Config) {
	env := map[string]any{}
	for _, name := range p.vars {
		env[name] = zeros[name]
	}
	c.WithEnv(env)
	for name, zero := range env {
		if zero == nil {
			c.Env.Fields[name] = nature.Nature{}
		}
	}
}

// String returns the expression as written.
func (p *program) String() string {
	if p == nil {
		return ""
	}
	return p.text
}

// IsZero reports whether there is no expression.
func (p *program) IsZero() bool { return p == nil }

// ByHost reports whether the value depends on the called host, as host(payload.url) does.
func (p *program) ByHost() bool { return p != nil && p.byHost }

// NormalizeKey returns a key in the form that host(…) gives, such as localhost for LocalHost:8080.
// It returns keys of other expressions unchanged.
func (p *program) NormalizeKey(key string) (string, error) {
	if p != nil {
		if call, ok := p.code.Node().(*ast.CallNode); ok && call.Callee.String() == "host" {
			return hostKey(key)
		}
	}
	return key, nil
}

// constant reports whether the value is the same for every job.
func (p *program) constant() bool { return len(p.names) == 0 }

// evaluate returns the value of a program, converted by convert. The value of a missing field is
// nil. from may be nil if the program is constant.
func evaluate[T any](p *program, from Source, convert func(any) (T, error)) (T, error) {
	var env map[string]any
	var err error
	if !p.constant() {
		env, err = from.values(p.names)
	}
	var value any
	if err == nil {
		value, err = expr.Run(p.code, env)
	}
	var converted T
	if err == nil {
		converted, err = convert(value)
	}
	if err != nil {
		return *new(T), p.wrap(err)
	}
	return converted, nil
}

// maxReason is the maximum length of an error of expr in bytes. The error can contain a value.
const maxReason = 300

// noField matches expr's error about a field of a value that has no fields.
var noField = regexp.MustCompile(`^cannot fetch (\S+) from (\S+)`)

// wrap adds the expression to an error. It puts expr's errors into plain words, without their lines
// that show the source, and adds the position to a syntax error.
func (p *program) wrap(err error) error {
	if shown, ok := errors.AsType[*file.Error](err); ok {
		reason := strings.TrimSpace(strings.SplitN(shown.Message, "\n", 2)[0])
		reason = strings.TrimPrefix(reason, "runtime error: ")
		_, field, noSuchName := strings.Cut(reason, "taskNames has no field ")
		fetched := noField.FindStringSubmatch(reason)
		switch {
		case noSuchName:
			reason = fmt.Sprintf("task has no field %s: want task.type, task.queue or task.id", field)
		case strings.HasPrefix(reason, "unknown name"):
			reason = fmt.Sprintf("%s: want one of %s, host(…), or text in quotes", reason, strings.Join(p.vars, ", "))
		case fetched != nil && fetched[2] == "<nil>":
			reason = fmt.Sprintf("there is no %s: the value before it is missing or null", fetched[1])
		case fetched != nil:
			reason = fmt.Sprintf("there is no %s: the value before it is no object or list", fetched[1])
		case p.code == nil && shown.Line > 0:
			reason = strings.ReplaceAll(reason, "unexpected token EOF", "unexpected end of expression")
			at := fmt.Sprintf("column %d", shown.Column+1)
			if strings.Contains(p.text, "\n") {
				at = fmt.Sprintf("line %d, %s", shown.Line, at)
			}
			reason = at + ": " + reason
		}
		if len(reason) > maxReason {
			reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
		}
		err = errors.New(reason)
	}
	return fmt.Errorf("%s %s: %w", p.what, p.text, err)
}

// multiplies are the functions whose time or result grows with the product of their arguments. All
// arguments but the first must be literals.
var multiplies = []string{"join", "repeat", "replace", "trim"}

// Visit collects the variables, and rejects what could be slow: the author of a payload must not
// control the time and memory of an expression. Without loops and ranges, and with literal
// arguments of multiplies, time and memory are proportional to the payload. The compiler calls
// Visit for each node.
func (p *program) Visit(node *ast.Node) {
	var err error
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		p.names[n.Value] = true
	case *ast.CallNode:
		p.byHost = p.byHost || n.Callee.String() == "host" && len(n.Arguments) == 1 && n.Arguments[0].String() == "payload.url"
	case *ast.BinaryNode:
		if n.Operator == ".." {
			err = fmt.Errorf("%s: ranges are not allowed: compute the value before enqueuing the job, and put it into the payload", n)
		} else if n.Operator == "matches" && !isLiteral(n.Right) {
			err = fmt.Errorf("matches %s: want a literal pattern in quotes", n.Right)
		}
	case *ast.BuiltinNode:
		for i, argument := range n.Arguments {
			if _, loop := argument.(*ast.PredicateNode); loop {
				err = fmt.Errorf("%s(…) is a loop, and loops are not allowed: compute the value before enqueuing the job, and put it into the payload", n.Name)
			} else if i > 0 && slices.Contains(multiplies, n.Name) && !isLiteral(argument) {
				err = cmp.Or(err, fmt.Errorf("%s(…, %s): want a literal instead of %s", n.Name, argument, argument))
			}
		}
		if n.Name == "uniq" {
			err = fmt.Errorf("%s(…) is not allowed: it compares every element with all others", n.Name)
		}
	}
	p.wrong = cmp.Or(p.wrong, err)
}

func isLiteral(node ast.Node) bool {
	switch node.(type) {
	case *ast.StringNode, *ast.IntegerNode:
		return true
	}
	return false
}
