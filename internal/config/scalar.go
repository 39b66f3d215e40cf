package config

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/headgate/headgate/throttle"
)

// scalar decodes a node that is one value into a text, number, duration or
// boolean.
func (d *decoder) scalar(path string, node ast.Node, to reflect.Value) {
	if _, ok := reflect.TypeAssert[time.Duration](to); ok {
		d.duration(path, node, to)
		return
	}
	ok := false
	switch to.Kind() {
	case reflect.String:
		if ok = isString(node); ok {
			to.SetString(source(node))
		}
	case reflect.Int:
		var n int64
		if n, ok = whole(node); ok {
			to.SetInt(n)
		}
	case reflect.Bool:
		var b *ast.BoolNode
		if b, ok = node.(*ast.BoolNode); ok {
			to.SetBool(b.Value)
		}
	}
	if !ok {
		want := map[reflect.Kind]string{
			reflect.String: "text (in quotes if it looks like a number)",
			reflect.Int:    "a whole number",
			reflect.Bool:   "true or false",
		}
		d.fail(node, path, "want %s, not %s", want[to.Kind()], describe(node))
	}
}

// text decodes a node by the UnmarshalText of its type. A number's own
// spelling counts as text there: cost: 3.
func (d *decoder) text(path string, node ast.Node, to encoding.TextUnmarshaler) {
	if !isScalar(node) {
		d.fail(node, path, "want text, not %s", describe(node))
		return
	}
	text := source(node)
	if err := to.UnmarshalText([]byte(text)); err != nil {
		message := err.Error()
		if field, ok := errors.AsType[*throttle.FieldError](err); ok {
			message = field.Value + ": " + field.Want // the path names the field
		}
		d.fail(node, path, "%s", message)
	}
}

func (d *decoder) duration(path string, node ast.Node, to reflect.Value) {
	duration, err := time.ParseDuration(source(node))
	if !isScalar(node) || err != nil || duration < 0 {
		d.fail(node, path, "%s is not a duration: want numbers with units such as 500ms, 90s or 1h30m", describe(node))
		return
	}
	to.SetInt(int64(duration))
}

// any decodes a node as JSON would have it, for payloads.
func (d *decoder) any(path string, node ast.Node) any {
	switch n := node.(type) {
	case ast.MapNode:
		var value map[string]any
		d.value(path, node, reflect.ValueOf(&value).Elem())
		return value
	case *ast.SequenceNode:
		var value []any
		d.value(path, node, reflect.ValueOf(&value).Elem())
		return value
	case *ast.BoolNode:
		return n.Value
	case *ast.IntegerNode:
		return n.Value
	case *ast.FloatNode:
		return n.Value
	case *ast.NullNode:
		return nil
	}
	if !isString(node) {
		d.fail(node, path, "%s is nothing that JSON has: write it as text, in quotes", describe(node))
	}
	return source(node)
}

func isString(node ast.Node) bool {
	switch node.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		return true
	}
	return false
}

// isScalar reports whether a node is one value and is not empty.
func isScalar(node ast.Node) bool {
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return true
	}
	return isString(node)
}

// source is a scalar as it was written, without its quotes.
func source(node ast.Node) string {
	if block, ok := node.(*ast.LiteralNode); ok {
		return strings.TrimSuffix(block.Value.Value, "\n")
	}
	return node.GetToken().Value
}

func whole(node ast.Node) (int64, bool) {
	n, ok := node.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch v := n.Value.(type) {
	case int64:
		return v, true
	case uint64:
		return int64(v), v <= math.MaxInt64
	}
	return 0, false
}

// describe says what a node is, for errors that wanted something else.
func describe(node ast.Node) string {
	switch node.(type) {
	case *ast.NullNode:
		return "nothing (write a value, or leave the line out)"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.BoolNode:
		return source(node)
	case *ast.IntegerNode, *ast.FloatNode:
		return "the number " + source(node)
	}
	return fmt.Sprintf("%q", source(node))
}
