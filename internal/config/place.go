package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

func keyName(key ast.MapKeyNode) (string, bool) {
	switch key.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode:
		return key.GetToken().Value, true
	}
	return "", false
}

// place is where to point for the value of a key: at the value if it is a
// scalar, otherwise at the key.
func place(value ast.Node, key *token.Position) *token.Position {
	if _, ok := value.(ast.ScalarNode); ok {
		return start(value)
	}
	return key
}

// start is where a node begins. A mapping's own token is its first colon.
func start(node ast.Node) *token.Position {
	if mapping, ok := node.(*ast.MappingNode); ok && !mapping.IsFlowStyle && len(mapping.Values) > 0 {
		return mapping.Values[0].Key.GetToken().Position
	}
	return node.GetToken().Position
}

// join is the path of a key. A key with a dot in it is quoted, so that paths
// do not clash.
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
