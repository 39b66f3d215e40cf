package lua

import "strings"

// Literal has a pattern of SCAN find the text itself: keys are other people's
// words, and may have stars in them.
func Literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
