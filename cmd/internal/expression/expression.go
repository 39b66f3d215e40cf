// Package expression evaluates the expressions of headgate.yaml: the key, cost and priority of a
// job, and the ${…} parts of payloads. The language is github.com/expr-lang/expr.
//
// An expression of a job can use payload, the decoded JSON, and task.type, task.queue and task.id.
// An expression of a finished job can also use result. An expression of a response can also use
// status, header(name), and body or json. An expression of a schedule can only use tick, a time.Time
// in the schedule's zone, and one of a CSV file only row. Every expression can use host(url) and most functions
// of expr. Loops are not allowed, because they can be slow. The function now is not allowed, because
// results must be repeatable.
package expression

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
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
	what        string // such as "key expression", for errors
	text        string
	allowedVars []string
	code        *vm.Program
	usedVars    map[string]bool
	byHost      bool  // see ByHost
	rejected    error // the first error of Visit, or nil
}

// compile compiles an expression. what is the kind of expression, such as "key expression".
func compile(what, text string, allowedVars []string) (*program, error) {
	p := &program{what: what, text: strings.TrimSpace(text), allowedVars: allowedVars, usedVars: map[string]bool{}}
	if p.text == "" {
		example := "host(payload.url)"
		switch allowedVars[0] {
		case "tick":
			example = "tick.Year()"
		case "row":
			example = "row.url"
		case "status":
			example = `status == 403 && body contains "quota"`
		}
		return nil, fmt.Errorf("%s is empty: want an expression such as %s", what, example)
	}
	if err := checkDepth(p.text); err != nil {
		return nil, fmt.Errorf("%s %.60s… %w", what, p.text, err)
	}
	var err error
	p.code, err = expr.Compile(p.text, p.declare, hostFunction, jsonFunction, expr.DisableBuiltin("now"), expr.DisableBuiltin("toJSON"), expr.Patch(p))
	if err = cmp.Or(p.rejected, err); err != nil {
		return nil, p.explain(err)
	}
	return p, nil
}

// maxDepth is the maximum number of nested brackets of an expression.
const maxDepth = 100

// checkDepth returns an error if brackets are nested too deep, because the compiler's stack and
// memory grow with the depth. Brackets in texts count, too, so that no text ends before its quote.
func checkDepth(text string) error {
	depth := 0
	for i, c := range text {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		}
		if depth > maxDepth {
			return fmt.Errorf("is nested more than %d levels deep, at character %d: want at most %d", maxDepth, i+1, maxDepth)
		}
	}
	return nil
}

// declare tells the compiler the types of the variables. payload and result can have any type.
func (p *program) declare(c *conf.Config) {
	env := map[string]any{}
	for _, name := range p.allowedVars {
		env[name] = zeroValues[name]
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

// ByHost reports whether host(payload.url) is the expression or a part of it.
func (p *program) ByHost() bool { return p != nil && p.byHost }

// NormalizeKey returns a key as host(…) would return it, such as localhost for LocalHost:8080. If
// the expression is no call of host, NormalizeKey returns the key unchanged.
func (p *program) NormalizeKey(key string) (string, error) {
	if p != nil {
		if call, ok := p.code.Node().(*ast.CallNode); ok && call.Callee.String() == "host" {
			return hostKey(key)
		}
	}
	return key, nil
}

// constant reports whether the value is the same for every job.
func (p *program) constant() bool { return len(p.usedVars) == 0 }

// sample returns a value of the type that all results have, or nil if the compiler does not know the
// type. The number 1 and the text high are valid results of each kind of expression that has numbers
// or texts as results.
func (p *program) sample() any {
	switch t := p.code.Node().Type(); t.Kind() {
	case reflect.Interface:
		return nil
	case reflect.Int, reflect.Float64:
		return 1
	case reflect.String:
		return "high" // a priority, too
	default:
		return reflect.Zero(t).Interface()
	}
}

// evaluate runs a program and converts its value. convert gets nil for a missing field. source can
// be nil if the program is constant.
func evaluate[T any](p *program, source Source, convert func(any) (T, error)) (T, error) {
	var env map[string]any
	var err error
	if !p.constant() {
		env, err = source.values(p.usedVars)
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
		return *new(T), p.explain(err)
	}
	return converted, nil
}

// maxReason bounds an error of expr in bytes, because the error can contain a value.
const maxReason = 300

// fetchError matches expr's error about a field of a value that has no fields.
var fetchError = regexp.MustCompile(`^cannot fetch (\S+) from (\S+)`)

// functionField matches expr's error about a field of the function header.
var functionField = regexp.MustCompile(`^type func\(string\) string has no field (\S+)$`)

// explain adds the expression to an error. It puts an error of expr into plain words on one line.
func (p *program) explain(err error) error {
	if shown, ok := errors.AsType[*file.Error](err); ok {
		reason := strings.TrimSpace(strings.SplitN(shown.Message, "\n", 2)[0])
		reason = strings.TrimPrefix(reason, "runtime error: ")
		_, field, noSuchName := strings.Cut(reason, "taskNames has no field ")
		fetched := fetchError.FindStringSubmatch(reason)
		switch {
		case noSuchName:
			reason = fmt.Sprintf("task has no field %s: want task.type, task.queue or task.id", field)
		case strings.HasPrefix(reason, "unknown name"):
			reason = fmt.Sprintf("%s: want one of %s, host(…), or text in quotes", reason, strings.Join(p.allowedVars, ", "))
		case fetched != nil && fetched[2] == "<nil>":
			reason = fmt.Sprintf("there is no %s: the value before it is missing or null", fetched[1])
		case fetched != nil:
			reason = fmt.Sprintf("there is no %s: the value before it is no object or list", fetched[1])
		case p.code == nil && shown.Line > 0:
			reason = strings.ReplaceAll(reason, "unexpected token EOF", "unexpected end of expression")
			reason = strings.ReplaceAll(reason, `unexpected token Operator("=")`, "unexpected =: want == to compare")
			reason = functionField.ReplaceAllString(reason, `header is a function: want header("$1")`)
			at := fmt.Sprintf("column %d", shown.Column+1)
			if strings.Contains(p.text, "\n") {
				at = fmt.Sprintf("line %d, %s", shown.Line, at)
			}
			reason = at + ": " + reason + p.columnHint()
		}
		if len(reason) > maxReason {
			reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
		}
		err = errors.New(reason)
	}
	return fmt.Errorf("%s %s: %w", p.what, p.text, err)
}

// columnHint returns how to write a column whose name is no identifier, if the expression has the name
// without quotes. A shell removes single quotes within single quotes.
func (p *program) columnHint() string {
	for _, column := range p.allowedVars {
		quoted, isQuoted := strings.CutPrefix(column, "row[")
		name, _ := strconv.Unquote(strings.TrimSuffix(quoted, "]"))
		if isQuoted && (strings.Contains(p.text, "row."+name) || strings.Contains(p.text, "row["+name+"]")) {
			return fmt.Sprintf(": want %s, and within a text of JSON %s", column, strings.ReplaceAll(column, `"`, `\"`))
		}
	}
	return ""
}

// costlyFunctions are the functions whose time or result grows with the product of their arguments.
// All arguments but the first must be literals.
var costlyFunctions = []string{"join", "repeat", "replace", "trim"}

// Visit collects the variables, and rejects what could be slow. The compiler calls it for each node
// of the expression. The time and memory of an accepted expression are proportional to the payload.
func (p *program) Visit(node *ast.Node) {
	var err error
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		p.usedVars[n.Value] = true
	case *ast.MemberNode:
		name, isName := n.Property.(*ast.StringNode)
		if isName && n.Node.String() == "row" && !slices.Contains(p.allowedVars, columnVar(name.Value)) {
			err = fmt.Errorf("there is no column %q: want one of %s", name.Value, strings.Join(p.allowedVars[1:], ", "))
		}
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
			} else if i > 0 && slices.Contains(costlyFunctions, n.Name) && !isLiteral(argument) {
				err = cmp.Or(err, fmt.Errorf("%s(…, %s): want a literal instead of %s", n.Name, argument, argument))
			}
		}
		if n.Name == "uniq" {
			err = fmt.Errorf("%s(…) is not allowed: it compares every element with all others", n.Name)
		}
	}
	p.rejected = cmp.Or(p.rejected, err)
}

func isLiteral(node ast.Node) bool {
	switch node.(type) {
	case *ast.StringNode, *ast.IntegerNode:
		return true
	}
	return false
}
