// Package robots parses robots.txt by RFC 9309, and decides which URLs a crawler may fetch. It does
// no I/O.
//
// A robots.txt is for one origin: scheme, host and port. Numbers such as 2.4 are sections of RFC
// 9309.
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
	// MaxSize is the maximum number of bytes that Parse reads of a file. It is the smallest maximum
	// that RFC 9309 permits. Parse ignores a line that goes beyond MaxSize.
	MaxSize = 500 << 10
	// MaxSitemaps is the maximum number of Sitemap lines that Parse reads. There is a maximum
	// because a crawl adds the sitemaps to the links of every page of the origin.
	MaxSitemaps = 1000
	// maxDelay limits a Crawl-delay, because a mistaken one could stop a crawl for good.
	maxDelay = 24 * time.Hour
	// stepsPerPart is what a rule, and each part between two stars, adds to File.Steps.
	stepsPerPart = 32
)

// File is a robots.txt, parsed for one crawler. The zero value is an empty file, which allows
// everything.
type File struct {
	// Sitemaps are the URLs of the Sitemap lines as written, without duplicates. They apply to
	// every crawler, and may be on other hosts.
	Sitemaps []string
	// CrawlDelay is the time between two requests that the file asks for, at most a day. 0 means
	// that the file asks for none. If the crawler's groups have several Crawl-delay lines, the last
	// one counts. RFC 9309 does not define Crawl-delay.
	CrawlDelay time.Duration
	// Steps is roughly the number of bytes that all calls of Allowed have compared. A caller can stop
	// at a maximum, because one call takes up to 100 ms if the file has very many wildcards.
	Steps int

	rules []rule // sorted by sortRules
}

// Parse parses a file for a crawler: its product token or its whole User-Agent, such as "headgate"
// or "headgate/1.2 (+https://example.com)". Parse accepts any text, and ignores lines with unknown
// keys. Lines end with CR, LF or both, and # begins a comment.
//
// All groups that name the crawler apply together (2.2.1). If no group names the crawler, the
// groups for * apply. Product tokens are compared whole: "foo" does not name "foobot".
func Parse(text []byte, agent string) *File {
	if len(text) > MaxSize {
		text = text[:MaxSize]
		text = text[:1+bytes.LastIndexAny(text, "\r\n")]
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	own := ProductToken(agent)
	groups := map[string]*File{"*": {}} // by product token; only * and the crawler's own token
	sitemaps := map[string]bool{}
	var file File
	// forRules and forDelay are the groups that the next rule and the next Crawl-delay belong to. A
	// User-agent line after a rule empties both lists. A User-agent line after a Crawl-delay empties
	// only forDelay, because RFC 9309 does not define Crawl-delay.
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
	sortRules(file.rules)
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

// Allowed reports whether the crawler may fetch a URL of the file's origin. url is an absolute URL,
// or a path with its query. Of the rules that match url, the one with the longest normalized path
// decides. If rules of the same length match, the URL is allowed if one of these rules allows it
// (2.2.2). A URL without a matching rule is allowed, and /robots.txt is always allowed.
func (f *File) Allowed(url string) bool {
	target := normalize(pathOf(url), false)
	if target == "/robots.txt" {
		return true
	}
	allowed, longest := true, -1
	// Of the rules whose heads are at most the target, only the last rule and its parents can match.
	at, _ := slices.BinarySearchFunc(f.rules, target, func(r rule, target string) int {
		return cmp.Or(strings.Compare(r.head(), target), -1)
	})
	for at := int32(at) - 1; at >= 0; at = f.rules[at].parent {
		f.Steps += stepsPerPart
		r := f.rules[at]
		if n := len(r.path); (n > longest || n == longest && r.allow) && f.matches(r, target) {
			allowed, longest = r.allow, n
		}
	}
	return allowed
}

// rule allows or disallows the targets that its path matches.
type rule struct {
	path        string // normalized; * matches any text
	wholeTarget bool   // the path must match the whole target, not only its beginning
	allow       bool
	headLen     int32 // the number of bytes before the first *, or of the whole path
	// parent is the index of the last earlier rule whose head begins this rule's head, or -1.
	parent int32
}

func (r *rule) head() string { return r.path[:r.headLen] }

// newRule parses the path of a rule. A $ at its end means that the rule matches whole targets only.
func newRule(path string, allow bool) rule {
	// Any other $ is an ordinary character, which normalize encodes.
	trimmed, whole := strings.CutSuffix(path, "$")
	path = normalize(trimmed, true)
	for strings.Contains(path, "**") {
		path = strings.ReplaceAll(path, "**", "*")
	}
	head, _, _ := strings.Cut(path, "*")
	return rule{path: path, wholeTarget: whole, allow: allow, headLen: int32(len(head))}
}

// sortRules sorts rules by their heads, and sets each rule's parent.
func sortRules(rules []rule) {
	slices.SortFunc(rules, func(a, b rule) int { return strings.Compare(a.head(), b.head()) })
	for i := range rules {
		parent := int32(i) - 1
		for parent >= 0 && !strings.HasPrefix(rules[i].head(), rules[parent].head()) {
			parent = rules[parent].parent
		}
		rules[i].parent = parent
	}
}

// matches reports whether a rule matches a normalized target. It needs no backtracking: the first
// occurrence of a part between two stars leaves the most text for the later parts.
func (f *File) matches(r rule, target string) bool {
	first, rest, starred := strings.Cut(r.path, "*")
	target, ok := strings.CutPrefix(target, first)
	if !ok {
		return false
	}
	f.Steps += len(target)
	for starred {
		f.Steps += stepsPerPart
		var part string
		part, rest, starred = strings.Cut(rest, "*")
		if !starred && r.wholeTarget {
			return strings.HasSuffix(target, part)
		}
		_, target, ok = strings.Cut(target, part)
		if !ok {
			return false
		}
	}
	return !r.wholeTarget || target == ""
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

// normalize returns a path and its query in a normalized percent-encoding (2.2.2), so that equal
// paths become equal texts. It decodes characters that need no encoding, and encodes characters
// that a URL cannot contain. Separators stay as they are, encoded or not. A $ is always encoded, and
// a * only in targets, because in a pattern it is a wildcard.
func normalize(path string, pattern bool) string {
	encode := func(c byte) bool { return c <= ' ' || c >= 0x7f || c == '$' || c == '*' && !pattern }
	// The unreserved characters of RFC 3986, and the reserved characters that are no separators in
	// a path or a query. So %2F and a slash are equal in a query, but not in a path.
	decodeInPath := func(c byte) bool { return canonical.IsAlphanumeric(c) || strings.IndexByte("-._~:@!'(),;[]", c) >= 0 }
	decodeInQuery := func(c byte) bool { return decodeInPath(c) || c == '/' || c == '?' }
	path, query, ok := strings.Cut(path, "?")
	path = canonical.PercentEncoding(path, decodeInPath, encode)
	if ok {
		path += "?" + canonical.PercentEncoding(query, decodeInQuery, encode)
	}
	return path
}
