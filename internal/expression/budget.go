package expression

import (
	"errors"
	"reflect"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
)

// Whoever writes a payload, or an answer, must not decide how long a formula takes and how
// much it makes: replace(s, "a", s) makes 400 MB of 20 kB, and a list within a list within
// a list is gone through for hours. So each run has a budget in bytes, and pays from it
// before it does what grows: texts and lists that functions and operators look at or make,
// by their size, and each round of a loop. It counts and does not look at a clock, so that
// the same job always gives the same answer. What makes a byte takes some nanoseconds of
// time, and so a run ends within seconds. A formula without loops and expr's own functions
// makes no more than is written in it and in the payload, and pays nothing.
const (
	maxSpent = 16 << 20
	// round is what an element of a list costs, and one round of a loop over it.
	round = 16
	// nesting is what a level costs all that is in it: indented JSON has two blanks for each.
	nesting = 2
	// parsed is what a byte of JSON costs more than one that is looked at.
	parsed = 8
)

var errSpent = errors.New("it makes, or goes through, more than 16 MiB")

type budget struct{ left float64 }

func (b *budget) take(cost float64) error {
	if b.left -= cost; b.left < 0 {
		return errSpent
	}
	return nil
}

// budgetName is where environments have it. No formula can write a name with blanks.
const budgetName = "what is left"

// charges are what a value costs that a function or an operator is about to look at.
var charges = map[string]func(b *budget, value any) error{
	"a round": func(b *budget, _ any) error { return b.take(round) },
	// whole is for what looks at all of it, and outer for what looks at no element's inside.
	"whole":  func(b *budget, v any) error { return b.whole(reflect.ValueOf(v), 0) },
	"outer":  func(b *budget, v any) error { return b.take(outer(v)) },
	"parsed": func(b *budget, v any) error { return b.take(parsed * outer(v)) },
	// each with each compares every element with all others.
	"each with each": func(b *budget, v any) error {
		before := b.left
		if err := b.whole(reflect.ValueOf(v), 0); err != nil {
			return err
		}
		return b.take((before - b.left) * outer(v) / round / round)
	},
}

// outer is the size of a text, or of a list or an object without what is in it.
func outer(value any) float64 {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.String:
		return float64(v.Len())
	case reflect.Slice, reflect.Array, reflect.Map:
		return round * float64(v.Len())
	}
	return 0
}

// whole pays for a value with all that is in it. What is in it twice is paid for twice.
func (b *budget) whole(v reflect.Value, depth int) error {
	if err := b.take(round + nesting*float64(depth)); err != nil {
		return err
	}
	switch v.Kind() {
	case reflect.String:
		return b.take(float64(v.Len()))
	case reflect.Interface:
		return b.whole(v.Elem(), depth)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := b.whole(v.Index(i), depth+1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			if err := errors.Join(b.whole(entry.Key(), depth+1), b.whole(entry.Value(), depth+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// growing are the functions whose result is more than their arguments together: what they
// make, and what they go through for it. Arguments of other types than they want count as
// nothing: the function itself says what is wrong.
var growing = map[string]func(args []any) float64{
	"replace": func(args []any) float64 {
		s, old, by := textAt(args, 0), textAt(args, 1), textAt(args, 2)
		return float64(len(s)) + float64(strings.Count(s, old))*float64(len(by))
	},
	"repeat": func(args []any) float64 {
		times, _ := args[1].(int)
		return float64(len(textAt(args, 0))) * float64(times)
	},
	"join": func(args []any) float64 {
		made := 0.0
		if list := reflect.ValueOf(args[0]); list.Kind() == reflect.Slice {
			for i := range list.Len() {
				s, _ := reflect.TypeAssert[string](list.Index(i))
				made += round + float64(len(s)+len(textAt(args, 1)))
			}
		}
		return made
	},
	"split":      parts,
	"splitAfter": parts,
	"trim":       func(args []any) float64 { return float64(len(textAt(args, 0))) * float64(1+len(textAt(args, 1))) },
}

func parts(args []any) float64 {
	s := textAt(args, 0)
	return float64(len(s)) + round*float64(1+strings.Count(s, textAt(args, 1)))
}

// textAt is that argument, or nothing.
func textAt(args []any, i int) string {
	if i >= len(args) {
		return ""
	}
	s, _ := args[i].(string)
	return s
}

// charged is what functions pay for each of their arguments, where it is not the whole.
var charged = map[string]string{
	"first": "", "last": "", "get": "", "take": "", "type": "", "int": "", "float": "",
	"len": "outer", "count": "outer", "sum": "outer", "keys": "outer", "values": "outer", "toPairs": "outer", "reverse": "outer", "concat": "outer",
	"upper": "outer", "lower": "outer", "fromJSON": "parsed", "uniq": "each with each",
}

// payments are the functions that a payer writes into formulas. Their first argument is the
// budget, and they give what the others give without them.
func payments(c *conf.Config) {
	for name, charge := range charges {
		c.Functions[name] = &builtin.Function{
			Name: name,
			Func: func(args ...any) (any, error) { return args[1], charge(args[0].(*budget), args[1]) },
			Validate: func(args []reflect.Type) (reflect.Type, error) {
				if args[1] == nil {
					return reflect.TypeFor[any](), nil
				}
				return args[1], nil
			},
		}
	}
	for name, grows := range growing {
		original := builtin.Builtins[builtin.Index[name]]
		paying := &builtin.Function{
			Name:     payingName(name),
			Validate: func([]reflect.Type) (reflect.Type, error) { return original.Types[0].Out(0), nil },
			Func: func(args ...any) (any, error) {
				if err := args[0].(*budget).take(grows(args[1:])); err != nil {
					return nil, err
				}
				if original.Safe != nil {
					value, _, err := original.Safe(args[1:]...)
					return value, err
				}
				return original.Func(args[1:]...)
			},
		}
		c.Functions[paying.Name] = paying
	}
}

func payingName(name string) string { return "paying " + name }

// payer writes the payments into a formula.
type payer struct{}

// Visit is called for every part of a formula, after those within it.
func (payer) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.PredicateNode:
		pay("a round", &n.Node)
	case *ast.BinaryNode:
		if n.Operator == "??" {
			return // it looks at nothing
		}
		pay("whole", &n.Left)
		pay("whole", &n.Right)
	case *ast.MemberNode:
		pay("whole", &n.Property) // an error says it
	case *ast.CallNode:
		for i := range n.Arguments {
			pay("whole", &n.Arguments[i])
		}
	case *ast.BuiltinNode:
		if growing[n.Name] != nil {
			call := &ast.CallNode{Callee: &ast.IdentifierNode{Value: payingName(n.Name)}, Arguments: append([]ast.Node{budgetOf(n)}, n.Arguments...)}
			call.SetLocation(n.Location())
			*node = call
			return
		}
		charge, known := charged[n.Name]
		if !known {
			charge = "whole"
		}
		if len(n.Arguments) > 1 {
			if _, loop := n.Arguments[1].(*ast.PredicateNode); loop {
				return // its rounds pay
			}
		}
		for i := range n.Arguments {
			pay(charge, &n.Arguments[i])
		}
	}
}

// pay puts the charge around a value, where that has a size that others decide.
func pay(charge string, node *ast.Node) {
	if charge == "" || charge != "a round" && small(*node) {
		return
	}
	call := &ast.CallNode{Callee: &ast.IdentifierNode{Value: charge}, Arguments: []ast.Node{budgetOf(*node), *node}}
	call.SetLocation((*node).Location())
	*node = call
}

func budgetOf(node ast.Node) ast.Node {
	b := &ast.IdentifierNode{Value: budgetName}
	b.SetLocation(node.Location())
	return b
}

// small reports whether a value is written in the formula, or a number or a bool.
func small(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.StringNode, *ast.NilNode, *ast.ConstantNode, *ast.BytesNode:
		return true
	case *ast.ArrayNode:
		for _, each := range n.Nodes {
			if !small(each) {
				return false
			}
		}
		return true
	}
	kind := node.Type().Kind()
	return kind >= reflect.Bool && kind <= reflect.Float64
}
