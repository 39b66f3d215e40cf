package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Error is an error in a config file, with its position and what to write instead.
type Error struct {
	File    string
	Line    int    // from 1
	Column  int    // from 1
	Path    string // such as limits.api-daily.rate; empty for the whole file
	Message string
}

// Error returns the position and the message on one line, like a compiler.
func (e *Error) Error() string {
	place := fmt.Sprintf("%s:%d:%d: ", e.File, e.Line, e.Column)
	if e.Path != "" {
		place += e.Path + ": "
	}
	return place + e.Message
}

// Errors are all errors in a config file, in its order.
type Errors []*Error

// Error returns one line for each error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// joined returns all errors of type E in err, which can be the result of errors.Join.
func joined[E error](err error) (all []E) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, each := range several.Unwrap() {
			all = append(all, joined[E](each)...)
		}
	} else if one, ok := errors.AsType[E](err); ok {
		all = append(all, one)
	}
	return all
}

// didYouMean returns which of the known names an unknown name probably meant, or "". hint is the
// end of the error about the unknown name.
func didYouMean(name string, names []string) (meant, hint string) {
	least := 1 + len(name)/3
	for _, candidate := range names {
		if d := distance(strings.ToLower(name), candidate); d <= least {
			meant, least = candidate, d-1
		}
	}
	switch {
	case meant != "":
		return meant, fmt.Sprintf("did you mean %s?", meant)
	case len(names) == 0:
		return "", "there are none"
	}
	return "", "want one of " + strings.Join(names, ", ")
}

// distance is the number of bytes to insert, delete or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func keyName(key ast.MapKeyNode) (string, bool) {
	switch key.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode:
		return key.GetToken().Value, true
	}
	return "", false
}

// place returns the position to report for a key: that of its value if the value is a scalar,
// otherwise that of the key.
func place(value ast.Node, key *token.Position) *token.Position {
	if _, ok := value.(ast.ScalarNode); ok {
		return start(value)
	}
	return key
}

// start returns the position of a node's first character. The node of a block mapping has the first
// colon as its token, so start uses the first key.
func start(node ast.Node) *token.Position {
	if mapping, ok := node.(*ast.MappingNode); ok && !mapping.IsFlowStyle && len(mapping.Values) > 0 {
		return mapping.Values[0].Key.GetToken().Position
	}
	return node.GetToken().Position
}

// join appends a key to a path. A key with a dot is quoted.
func join(path, key string) string {
	if strings.ContainsAny(key, ".[]") {
		key = fmt.Sprintf("%q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// parent is the path without its last step.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func indexed(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
