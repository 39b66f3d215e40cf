package redact

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// names are patterns of path.Match for the names of headers, fields and parameters whose values are
// secrets. They decide what is shown and what is sent to another host.
var names = []string{
	"*authorization*", "auth", "x-auth", "jwt", "x-jwt", "*signature*",
	"cookie", "set-cookie", "cookies", "*session?id", "*sessionid",
	"*password*", "*passwd*", "*passphrase*", "*secret*", "*token*", "*credential*",
	"*api?key*", "*apikey*", "*access?key*", "*accesskey*", "*private?key*", "*privatekey*", "*subscription?key*",
}

// Names returns the patterns of secret names, followed by more.
func Names(more ...string) []string { return append(slices.Clone(names), more...) }

// Named reports whether the name of a header or a field, in any case, matches one of the patterns of
// Names.
func Named(name string, more ...string) bool {
	name = strings.ToLower(name)
	fits := func(pattern string) bool { ok, _ := path.Match(strings.ToLower(pattern), name); return ok }
	return slices.ContainsFunc(names, fits) || slices.ContainsFunc(more, fits)
}

// expression returns a regular expression for the parameters of a query that match the patterns. In
// a parameter's name, * matches any characters of a name, and ? matches a separator or nothing.
func expression(patterns []string) string {
	var parts []string
	for _, p := range patterns {
		p = strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, `[\w.~-]*`)
		parts = append(parts, strings.ReplaceAll(p, `\?`, `[-_.]?`))
	}
	return strings.Join(parts, "|")
}
