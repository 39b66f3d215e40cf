// Package redact knows which values are secrets by their names: headers, fields, and the
// parameters of URLs such as api_key=…, token=…, a signature. Secrets should be references, but URLs
// are copied from documents.
package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Hidden stands where a secret was. It has the same length for all, so it tells none of theirs.
const Hidden = "•••"

// parameter is a parameter of a query whose value is a secret, by its name. Of tokens only
// these are secrets there: the reader of a list needs those that say where it goes on (page_token).
// In return some short names are secrets in a query alone.
var parameter = regexp.MustCompile(`(?i)([?&;](?:` +
	expression(slices.DeleteFunc(Names("key", "pass", "pwd", "sig"), func(pattern string) bool { return pattern == "*token*" })) +
	`|(?:[\w.~-]*(?:access|auth|bearer|id|oauth|refresh|security|session|user)[-_.]?)?token` +
	`)=)([^&#\s"'<>\\]+)`)

// reference is one to a secret, which is none itself.
var reference = regexp.MustCompile(`^\$\{(?:env|file):[^{}]+\}$`)

// Query is a text without the secrets in the queries of its URLs. References stay.
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

// Values are the secrets in a URL's query, each as it stands there and as it is meant.
func Values(of string) []string {
	var values []string
	for _, found := range parameter.FindAllStringSubmatch(of, -1) {
		value := found[2]
		if reference.MatchString(value) {
			continue
		}
		values = append(values, value)
		if plain, err := url.QueryUnescape(value); err == nil && plain != value {
			values = append(values, plain)
		}
	}
	return values
}
