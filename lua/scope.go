package lua

import "strings"

// Prefix is what the keys of a scope begin with: the key of most scripts.
func Prefix(scope string) string { return "hg:{" + scope + "}:" }

// Scope is the scope whose keys begin so.
func Scope(prefix string) string {
	return strings.TrimSuffix(strings.TrimPrefix(prefix, "hg:{"), "}:")
}
