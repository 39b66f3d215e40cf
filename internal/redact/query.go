// Package redact recognizes secrets by their names: headers, fields, and parameters of URLs such as
// api_key=…, token=… and signatures. A payload should refer to a secret, as in
// ${env:TOKEN}, but users often paste whole URLs.
package redact

import (
	"regexp"
	"slices"
	"strings"
)

// Hidden replaces a secret. It does not show the secret's length.
const Hidden = "•••"

// parameter matches a parameter of a query whose value is a secret. A name with "token" matches
// only in some forms, because page_token and the like say where a list continues. Some short names,
// such as key, are names of secrets only in a query.
var parameter = regexp.MustCompile(`(?i)([?&;](?:` +
	expression(slices.DeleteFunc(Names("key", "pass", "pwd", "sig"), func(pattern string) bool { return pattern == "*token*" })) +
	`|(?:[\w.~-]*(?:access|auth|bearer|id|oauth|refresh|security|session|user)[-_.]?)?token` +
	`)=)([^&#\s"'<>\\]+)`)

// reference matches a reference to a secret, which is no secret itself.
var reference = regexp.MustCompile(`^\$\{(?:env|file):[^{}]+\}$`)

// Query hides the secrets in the queries of a text's URLs. References stay.
func Query(text string) string {
	if !strings.Contains(text, "=") {
		return text
	}
	return parameter.ReplaceAllStringFunc(text, func(found string) string {
		name, value, _ := strings.Cut(found, "=")
		if reference.MatchString(value) {
			return found
		}
		return name + "=" + Hidden
	})
}
