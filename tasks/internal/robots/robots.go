// Package robots parses robots.txt by RFC 9309, and decides which URLs a crawler may fetch. It does
// no I/O.
//
// A robots.txt is for one origin: scheme, host and port. The caller requests the file, follows at
// least five redirects (2.3.1.2), passes the text to [Parse], and calls [File.Allowed] for every
// URL of that origin. It should not use a file for longer than a day (2.4).
package robots

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/canonical"
)

const (
	// MaxSize is the number of bytes of a file that are parsed, the minimum of RFC 9309. A line
	// that is cut off there is ignored.
	MaxSize = 500 << 10
	// MaxSitemaps is the number of Sitemap lines that are read. It is limited because a crawl adds
	// the sitemaps to the links of every page of the origin.
	MaxSitemaps = 1000
	// maxDelay limits a Crawl-delay, because a mistaken one could stop a crawl for good.
	maxDelay = 24 * time.Hour
)

// File is a robots.txt, parsed for one crawler. The zero value is an empty file, which allows
// everything.
type File struct {
	// Sitemaps are the URLs of the Sitemap lines as written, without duplicates. They apply to
	// every crawler, and may be on other hosts.
	Sitemaps []string
	// CrawlDelay is the time between two requests that the file asks for, at most a day, or 0. If
	// there are several, the last one counts. RFC 9309 does not define Crawl-delay.
	CrawlDelay time.Duration

	rules []rule
}

// Parse parses a file for a crawler: its product token or its whole User-Agent, such as "headgate"
// or "headgate/1.2 (+https://example.com)". Parse accepts any text, and ignores lines with unknown
// keys. Lines end with CR, LF or both, and # begins a comment.
//
// The groups that name the crawler apply together (2.2.1), or the groups for * if no group does.
// Product tokens are compared whole: "foo" does not name "foobot".
func Parse(text []byte, agent string) *File {
	if len(text) > MaxSize {
		text = text[:MaxSize]
		text = text[:1+bytes.LastIndexAny(text, "\r\n")]
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	own := ProductToken(agent)
	groups := map[string]*File{"*": {}} // and a group of the crawler, once a line names it
	sitemaps := map[string]bool{}
	var file File // has only Sitemaps until the end
	// A User-agent line after an Allow or Disallow line begins a new group. A Crawl-delay line does
	// not end a group, because RFC 9309 does not define it. A User-agent line
	// after a Crawl-delay begins a new list of agents for the next Crawl-delay lines.
	var forRules, forDelay []*File
	hasRules, hasDelay := false, false
	for line := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '\r' || r == '\n' }) {
		line, _, _ = strings.Cut(line, "#")
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value)
		switch key {
		case "user-agent":
			if hasRules {
				forRules, hasRules = nil, false
			}
			if len(forRules) == 0 || hasDelay {
				forDelay, hasDelay = nil, false
			}
			token := ProductToken(value)
			if token == "" || token != own && token != "*" {
				continue
			}
			g := cmp.Or(groups[token], &File{})
			groups[token] = g
			if !slices.Contains(forRules, g) {
				forRules = append(forRules, g)
			}
			forDelay = append(forDelay, g)
		case "allow", "disallow":
			hasRules = true
			for _, g := range forRules {
				if value != "" { // an empty path matches nothing
					g.rules = append(g.rules, newRule(value, key == "allow"))
				}
			}
		case "crawl-delay":
			hasDelay = true
			if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 {
				for _, g := range forDelay {
					g.CrawlDelay = time.Duration(min(seconds, maxDelay.Seconds()) * float64(time.Second))
				}
			}
		case "sitemap":
			if value != "" && !sitemaps[value] && len(sitemaps) < MaxSitemaps {
				sitemaps[value] = true
				file.Sitemaps = append(file.Sitemaps, value)
			}
		}
	}
	g := cmp.Or(groups[own], groups["*"])
	file.rules, file.CrawlDelay = g.rules, g.CrawlDelay
	return &file
}

// ProductToken returns the product token of a User-Agent or a User-agent line in lower case: the
// letters, hyphens and underscores at its beginning, or "*". The product token of
// "Headgate/1.2 (+https://example.com)" is "headgate".
func ProductToken(text string) string {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "*" || strings.HasPrefix(text, "* ") || strings.HasPrefix(text, "*\t") {
		return "*"
	}
	end := strings.IndexFunc(text, func(r rune) bool { return (r < 'a' || r > 'z') && r != '-' && r != '_' })
	if end >= 0 {
		text = text[:end]
	}
	return text
}

// Allowed reports whether the crawler may fetch a URL of the file's origin: an absolute URL, or a
// path with its query. The matching rule with the longest normalized path decides. If rules of the
// same length match, the URL is allowed if one of these rules allows it (2.2.2). A URL without a
// matching rule is allowed, and /robots.txt is always allowed.
func (f *File) Allowed(url string) bool {
	target := normalize(pathOf(url), false)
	if target == "/robots.txt" {
		return true
	}
	allowed, longest := true, -1
	for _, r := range f.rules {
		if n := len(r.path); (n > longest || n == longest && r.allow) && r.matches(target) {
			allowed, longest = r.allow, n
		}
	}
	return allowed
}

// rule allows or disallows the targets that its path matches.
type rule struct {
	path  string // normalized; * matches any text
	end   bool   // the path must match the whole target, not only its beginning
	allow bool
}

// newRule parses the path of a rule. A $ at the end means the end of the target.
func newRule(path string, allow bool) rule {
	// Any other $ is an ordinary character, which normalize encodes.
	trimmed, end := strings.CutSuffix(path, "$")
	r := rule{path: normalize(trimmed, true), end: end, allow: allow}
	for strings.Contains(r.path, "**") {
		r.path = strings.ReplaceAll(r.path, "**", "*")
	}
	return r
}

// matches reports whether the rule matches a normalized target. It needs no backtracking: if there
// is any match, there is one with each part between stars at its first position.
func (r rule) matches(target string) bool {
	first, rest, starred := strings.Cut(r.path, "*")
	target, ok := strings.CutPrefix(target, first)
	if !ok {
		return false
	}
	for starred {
		var part string
		part, rest, starred = strings.Cut(rest, "*")
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

// pathOf returns the path and the query of a URL, beginning with a slash and without the fragment.
// A "://" within a path or a query does not end a scheme.
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

// normalize returns the normalized percent-encoding of a path and its query (2.2.2), which is the
// same for equal paths. It decodes characters that need no encoding, and encodes characters that a
// URL cannot contain. Separators, such as & and %26, stay as they are. $ is always encoded, and *
// in targets, so that * in a pattern is always a wildcard.
func normalize(path string, pattern bool) string {
	encode := func(c byte) bool { return c <= ' ' || c >= 0x7f || c == '$' || c == '*' && !pattern }
	// The unreserved characters of RFC 3986, and the reserved characters that are no separators in
	// a path or a query. So %2F and a slash are equal in a query, but not in a path.
	inPath := func(c byte) bool { return canonical.Alphanumeric(c) || strings.IndexByte("-._~:@!'(),;[]", c) >= 0 }
	inQuery := func(c byte) bool { return inPath(c) || c == '/' || c == '?' }
	path, query, ok := strings.Cut(path, "?")
	path = canonical.Percent(path, inPath, encode)
	if ok {
		path += "?" + canonical.Percent(query, inQuery, encode)
	}
	return path
}
