package script

import "strings"

// Prefix is what the keys of a scope begin with: the key of most scripts.
func Prefix(scope string) string { return "hg:{" + scope + "}:" }

// Scope is the scope whose keys begin so.
func Scope(prefix string) string {
	return strings.TrimSuffix(strings.TrimPrefix(prefix, "hg:{"), "}:")
}

// Literal has a pattern of SCAN find the text itself: keys are other people's
// words, and may have stars in them.
func Literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
