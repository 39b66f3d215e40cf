package expression

import (
	"fmt"

	"github.com/expr-lang/expr/ast"
)

// refused finds what a formula must not have. A payload is written by others than the formula, and
// must not decide how long the formula takes and how much it makes. Without loops and ranges, and
// with what multiplies a text written out in the formula, both grow in proportion to the payload.
type refused struct{ err error }

// multiplies are the functions whose result can be as long as the product of their arguments, or
// that take so long. All arguments but the first must be written out.
var multiplies = map[string]bool{"join": true, "repeat": true, "replace": true, "trim": true}

// Visit is called for every part of a formula, after those within it.
func (r *refused) Visit(node *ast.Node) {
	if r.err != nil {
		return
	}
	switch n := (*node).(type) {
	case *ast.BinaryNode:
		switch {
		case n.Operator == "..":
			r.err = fmt.Errorf("%s: a range is refused: want a value of the payload", n)
		case n.Operator == "matches" && !writtenOut(n.Right):
			r.err = fmt.Errorf("matches %s: want the pattern in quotes: a job does not bring its own", n.Right)
		}
	case *ast.BuiltinNode:
		r.err = refusedCall(n)
	}
}

func refusedCall(n *ast.BuiltinNode) error {
	for i, argument := range n.Arguments {
		if _, loop := argument.(*ast.PredicateNode); loop {
			return fmt.Errorf("%s(…) is a loop, which is refused: compute its value before the job is enqueued, and put it into the payload", n.Name)
		}
		if i > 0 && multiplies[n.Name] && !writtenOut(argument) {
			return fmt.Errorf("%s(…, %s): want %s written out: a job does not bring it", n.Name, argument, argument)
		}
	}
	if n.Name == "uniq" {
		return fmt.Errorf("%s(…) is refused: it compares every element with all others", n.Name)
	}
	return nil
}

// writtenOut reports whether a value stands in the formula.
func writtenOut(node ast.Node) bool {
	switch node.(type) {
	case *ast.StringNode, *ast.IntegerNode:
		return true
	}
	return false
}
