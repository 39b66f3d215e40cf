package robots

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// rules are those of a group, as a URL is looked up in them: most have no wildcard, and
// are found by the beginnings of the URL, however many there are.
type rules struct {
	plain   map[string]bool // by path, with a $ where it has to end there: whether it is allowed
	lengths []int           // of the paths in plain, the longest first
	wild    []rule          // with a *, the longest first
}

func (s *rules) add(r rule) {
	before, _, wild := strings.Cut(r.path, "*")
	switch {
	case wild && len(s.wild) < MaxWildcards:
		s.wild = append(s.wild, r)
		return
	case wild && r.allow:
		return
	case wild:
		r.path, r.end = before, false
	}
	if r.end {
		r.path += "$" // which no canonical path has
	}
	if s.plain == nil {
		s.plain = map[string]bool{}
	}
	s.plain[r.path] = s.plain[r.path] || r.allow
}

// order makes the rules ready, after the last was added.
func (s *rules) order() {
	lengths := map[int]bool{}
	for path := range s.plain {
		lengths[len(path)] = true
	}
	s.lengths = slices.SortedFunc(maps.Keys(lengths), func(a, b int) int { return cmp.Compare(b, a) })
	slices.SortStableFunc(s.wild, func(a, b rule) int { return cmp.Compare(len(b.path), len(a.path)) })
}

// allow reports whether a canonical target is allowed: by the longest rule that matches,
// and of several as long by one that allows.
func (s *rules) allow(target string) bool {
	allowed, longest := true, -1
	take := func(length int, allow bool) {
		if length > longest || length == longest && allow {
			allowed, longest = allow, length
		}
	}
	if allow, ok := s.plain[target+"$"]; ok {
		take(len(target), allow)
	}
	for _, n := range s.lengths {
		if n > len(target) {
			continue
		}
		if allow, ok := s.plain[target[:n]]; ok {
			take(n, allow)
			break
		}
	}
	for _, r := range s.wild {
		if len(r.path) < longest {
			break
		}
		if (len(r.path) > longest || r.allow) && r.matches(target) {
			take(len(r.path), r.allow)
		}
	}
	return allowed
}

// rule allows or disallows what its path matches: all targets that begin like it,
// since a path without $ is open at its end.
type rule struct {
	path  string // canonical, with * as it is written
	end   bool   // whether the match has to end where the path does
	allow bool
}

// newRule reads a path with its wildcards: * for any number of characters and, at
// the end, $ for the end of the URL. Stars in a row are one.
func newRule(path string, allow bool) rule {
	// Only there: a $ inside a path stands for itself, and canonical encodes it.
	trimmed, end := strings.CutSuffix(path, "$")
	r := rule{path: canonical(trimmed, true), end: end, allow: allow}
	for strings.Contains(r.path, "**") {
		r.path = strings.ReplaceAll(r.path, "**", "*")
	}
	return r
}

// matches reports whether the rule is about a canonical target. It takes every
// part between stars where it comes first; only the last can have to be at the
// end. To take the first place is always right, as what follows a star may begin
// anywhere after it: no way has to be gone back, so no rule can make this slow.
func (r rule) matches(target string) bool {
	first, rest, starred := strings.Cut(r.path, "*")
	target, ok := strings.CutPrefix(target, first)
	if !ok {
		return false
	}
	for starred {
		var part string
		part, rest, starred = strings.Cut(rest, "*")
		// The last part at the end. What the star before it takes may be nothing.
		if !starred && r.end {
			return strings.HasSuffix(target, part)
		}
		_, target, ok = strings.Cut(target, part)
		if !ok {
			return false
		}
	}
	return !r.end || target == ""
}

// pathOf is the path and the query of a URL, which begin with a slash, without its
// fragment. A "://" in a path or a query is no scheme's.
func pathOf(url string) string {
	url, _, _ = strings.Cut(url, "#")
	if scheme, rest, ok := strings.Cut(url, "://"); ok && !strings.ContainsAny(scheme, "/?") {
		url = ""
		if at := strings.IndexAny(rest, "/?"); at >= 0 {
			url = rest[at:]
		}
	}
	if !strings.HasPrefix(url, "/") {
		url = "/" + url
	}
	return url
}

// canonical writes a path with its query such that two that mean the same are
// the same, as 2.2.2 of the RFC wants them compared: what need not be
// percent-encoded is not, everything else is, with capital digits. A star and a
// dollar that stand for themselves are encoded, so that in a pattern a star is
// always a wildcard; and so is a percent sign, or it would begin what comes decoded after it.
func canonical(path string, pattern bool) string {
	var b strings.Builder
	inQuery := false
	for i := 0; i < len(path); i++ {
		c := path[i]
		decoded, encoded := unhex(path[i:])
		switch {
		case encoded && keepsMeaning(decoded, inQuery):
			b.WriteByte(decoded)
			i += 2
		case encoded:
			fmt.Fprintf(&b, "%%%02X", decoded)
			i += 2
		case c == '*' && pattern:
			b.WriteByte(c)
		case c <= ' ' || c >= 0x7f || c == '*' || c == '$' || c == '%':
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			inQuery = inQuery || c == '?'
			b.WriteByte(c)
		}
	}
	return b.String()
}

// keepsMeaning reports whether a character means the same percent-encoded and
// not: the unreserved ones of RFC 3986, and such reserved ones as part nothing
// where they stand. So %2F in a path is no slash, and in a query it is.
func keepsMeaning(c byte, inQuery bool) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	case c == '/' || c == '?':
		return inQuery
	}
	return strings.IndexByte("-._~:@!'(),;[]", c) >= 0
}

// unhex is the character that a text begins with percent-encoded, if it does. A
// percent sign alone stands for itself.
func unhex(text string) (byte, bool) {
	if text[0] != '%' {
		return 0, false
	}
	decoded, err := url.PathUnescape(text[:min(3, len(text))])
	if err != nil {
		return 0, false
	}
	return decoded[0], true
}
