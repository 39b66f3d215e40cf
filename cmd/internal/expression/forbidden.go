package expression

import (
	"fmt"

	"github.com/expr-lang/expr/ast"
)

// forbidden finds what a formula must not contain. The author of a payload must not control the time and
// memory of a formula. Without loops and ranges, and with literal multipliers, both are proportional to
// the payload.
type forbidden struct{ err error }

// multiplies are the functions whose time or result is a product of their arguments. All arguments but
// the first must be literals.
var multiplies = map[string]bool{"join": true, "repeat": true, "replace": true, "trim": true}

// Visit is called for each node, after its children.
func (r *forbidden) Visit(node *ast.Node) {
	if r.err != nil {
		return
	}
	switch n := (*node).(type) {
	case *ast.BinaryNode:
		switch {
		case n.Operator == "..":
			r.err = fmt.Errorf("%s: ranges are not allowed: want a value of the payload", n)
		case n.Operator == "matches" && !isLiteral(n.Right):
			r.err = fmt.Errorf("matches %s: want a literal pattern in quotes", n.Right)
		}
	case *ast.BuiltinNode:
		r.err = forbiddenCall(n)
	}
}

func forbiddenCall(n *ast.BuiltinNode) error {
	for i, argument := range n.Arguments {
		if _, loop := argument.(*ast.PredicateNode); loop {
			return fmt.Errorf("%s(…) is a loop, and loops are not allowed: compute the value before enqueuing the job, and put it into the payload", n.Name)
		}
		if i > 0 && multiplies[n.Name] && !isLiteral(argument) {
			return fmt.Errorf("%s(…, %s): want a literal instead of %s", n.Name, argument, argument)
		}
	}
	if n.Name == "uniq" {
		return fmt.Errorf("%s(…) is not allowed: it compares every element with all others", n.Name)
	}
	return nil
}

func isLiteral(node ast.Node) bool {
	switch node.(type) {
	case *ast.StringNode, *ast.IntegerNode:
		return true
	}
	return false
}
