package redact

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// names are the patterns, in the form of path.Match, of names that say that their value is a
// secret: of headers, of fields and of parameters in a query. What is shown and what is
// sent to another host goes by this one list.
var names = []string{
	"*authorization*", "auth", "x-auth", "jwt", "x-jwt", "*signature*",
	"cookie", "set-cookie", "cookies", "*session?id", "*sessionid",
	"*password*", "*passwd*", "*passphrase*", "*secret*", "*token*", "*credential*",
	"*api?key*", "*apikey*", "*access?key*", "*accesskey*", "*private?key*", "*privatekey*", "*subscription?key*",
}

// Names are the patterns of names that say that their value is a secret, followed by more.
func Names(more ...string) []string { return append(slices.Clone(names), more...) }

// Named reports whether the name of a header or a field, in any case, says that its value is
// a secret: whether it fits one of the patterns of Names.
func Named(name string, more ...string) bool {
	name = strings.ToLower(name)
	fits := func(pattern string) bool { ok, _ := path.Match(strings.ToLower(pattern), name); return ok }
	return slices.ContainsFunc(names, fits) || slices.ContainsFunc(more, fits)
}

// expression is a regular expression for the parameters of a query whose names fit the patterns.
// There * stands for the characters of a name, and ? for a separator or nothing.
func expression(patterns []string) string {
	var parts []string
	for _, p := range patterns {
		p = strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, `[\w.~-]*`)
		parts = append(parts, strings.ReplaceAll(p, `\?`, `[-_.]?`))
	}
	return strings.Join(parts, "|")
}
