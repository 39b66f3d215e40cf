// Package robots reads robots.txt by RFC 9309 and tells what a crawler may fetch. It does no
// I/O: the caller fetches and keeps the file.
//
// A robots.txt is for one origin: scheme, host and port. The caller requests it, follows at
// least five redirects (2.3.1.2), passes the response to [FromAnswer] with its own name, and
// calls [File.Allowed] for every URL of that origin. It should not keep the file for longer than
// a day (2.4).
package robots

import (
	"bytes"
	"cmp"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/canonical"
)

const (
	// MaxSize is how many bytes of a file are read, which is the minimum of RFC 9309. A line
	// that is cut off there is ignored.
	MaxSize = 500 << 10
	// MaxSitemaps is how many Sitemap lines are read: every page of the origin leads there.
	MaxSitemaps = 1000
	// maxRules is how many rules and wildcards a crawler's group may have. Each is compared
	// with each URL. A group with more disallows everything.
	maxRules = 20_000
	// maxDelay limits a Crawl-delay, so that a mistake does not stop a crawl for good.
	maxDelay = 24 * time.Hour
)

// File is what a robots.txt says to one crawler. The zero value is an empty file, which allows
// everything. A File does not change, so it is safe for concurrent use.
type File struct {
	// Sitemaps are the URLs of its Sitemap lines as they are written, without duplicates. They
	// are for every crawler, and may be on other hosts.
	Sitemaps []string

	group
}

// group is what a file says to some crawlers. All groups that name a crawler are combined
// (2.2.1).
type group struct {
	rules []rule
	work  int // number of rules and wildcards
	delay time.Duration
}

func (g *group) add(r rule) {
	g.work += 1 + strings.Count(r.path, "*")
	if g.work > maxRules {
		r, g.rules = rule{path: "/"}, nil
	}
	g.rules = append(g.rules, r)
}

// FromAnswer returns the file for a response to the request for it, after redirects. Without a
// file (4xx, or a redirect that leads nowhere) everything is allowed; while the host cannot tell
// (5xx) nothing is. A host that cannot be reached counts as a 503 (2.3.1). For a 429 the caller
// should ask again later: the RFC makes no exception for it.
//
// The agent is the crawler's product token or its whole User-Agent: "headgate" or
// "headgate/1.2 (+https://example.com)".
func FromAnswer(status int, body []byte, agent string) *File {
	switch {
	case status >= http.StatusInternalServerError:
		return Parse([]byte("User-agent: *\nDisallow: /\n"), agent)
	case status >= 200 && status < 300:
		return Parse(body, agent)
	}
	return &File{}
}

// Parse reads a file for a crawler. It ignores lines that it does not know, so it accepts
// anything. Lines end with CR, LF or both, and # begins a comment.
//
// The groups that name the crawler count, or else those for all others. A token is compared
// whole: "foo" does not name "foobot". Groups of other crawlers are not kept.
func Parse(text []byte, agent string) *File {
	if len(text) > MaxSize {
		text = text[:MaxSize]
		text = text[:1+bytes.LastIndexAny(text, "\r\n")]
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	own := Token(agent)
	p := parser{groups: map[string]*group{own: nil}, sitemaps: map[string]bool{}}
	p.groups["*"] = &group{}
	for line := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '\r' || r == '\n' }) {
		line, _, _ = strings.Cut(line, "#")
		if key, value, ok := strings.Cut(line, ":"); ok {
			p.line(strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value))
		}
	}
	p.file.group = *cmp.Or(p.groups[own], p.groups["*"])
	return &p.file
}

// parser reads the lines in order: names of crawlers, and then the rules for all of these. A
// name after a rule begins a new list of names.
type parser struct {
	file     File
	sitemaps map[string]bool

	groups map[string]*group // of the crawler, nil until it is named, and of the others
	to     []*group          // the groups that the next rule is for
	ruled  bool              // whether they have a rule
	// delayTo are the groups that the next Crawl-delay is for, and delayed reports whether they
	// have one. RFC 9309 does not know the line, so it does not end a list of names for
	// the rules. But a delay is meant for the names directly above it.
	delayTo []*group
	delayed bool
}

// line handles one line: its key in lower case, and its value. An unknown key changes nothing.
func (p *parser) line(key, value string) {
	switch key {
	case "user-agent":
		if p.ruled {
			p.to, p.ruled = nil, false
			p.delayTo, p.delayed = nil, false
		}
		if p.delayed {
			p.delayTo, p.delayed = nil, false
		}
		token := Token(value)
		of, known := p.groups[token]
		if !known || token == "" {
			return
		}
		if of == nil {
			of = &group{}
			p.groups[token] = of
		}
		if !slices.Contains(p.to, of) {
			p.to = append(p.to, of)
		}
		if !slices.Contains(p.delayTo, of) {
			p.delayTo = append(p.delayTo, of)
		}
	case "allow", "disallow":
		p.ruled = true
		if value == "" {
			return // an empty path matches nothing
		}
		for _, g := range p.to {
			g.add(newRule(value, key == "allow"))
		}
	case "crawl-delay":
		p.delayed = true
		if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 && !math.IsNaN(seconds) {
			for _, g := range p.delayTo {
				g.delay = time.Duration(min(seconds, maxDelay.Seconds()) * float64(time.Second))
			}
		}
	case "sitemap":
		if value != "" && !p.sitemaps[value] && len(p.sitemaps) < MaxSitemaps {
			p.sitemaps[value] = true
			p.file.Sitemaps = append(p.file.Sitemaps, value)
		}
	}
}

// Token returns the product token of a User-Agent in lower case: letters, hyphens and
// underscores, such as "headgate" of "Headgate/1.2 (+https://example.com)". It is empty if the
// User-Agent begins with anything else. A name in a file is read in the same way, and can be "*".
func Token(text string) string {
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

// Allowed reports whether the crawler may fetch a URL of the file's origin, which is absolute or a
// path with its query. The matching rule with the longest canonical path decides, and of two of
// one length the one that allows (2.2.2). Without a matching rule the URL is allowed, and
// /robots.txt always is.
func (f *File) Allowed(url string) bool {
	target := oneForm(pathOf(url), false)
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

// CrawlDelay is how long the crawler should wait between two requests, at most a day, or 0 if
// the file does not say. It is not part of the RFC. Of several the last counts.
func (f *File) CrawlDelay() time.Duration { return f.delay }

// rule allows or disallows what its path matches. A path without $ matches every target that
// begins with it.
type rule struct {
	path  string // canonical, with * as it is written
	end   bool   // whether the match has to end where the path does
	allow bool
}

// newRule reads a path, in which * is any text and $ at the end is the URL's end. Several stars in
// a row are one.
func newRule(path string, allow bool) rule {
	// A $ elsewhere is an ordinary character, which oneForm encodes.
	trimmed, end := strings.CutSuffix(path, "$")
	r := rule{path: oneForm(trimmed, true), end: end, allow: allow}
	for strings.Contains(r.path, "**") {
		r.path = strings.ReplaceAll(r.path, "**", "*")
	}
	return r
}

// matches reports whether the rule matches a canonical target. It takes the first place for every
// part between stars, and the end for the last part if the rule has $. That is always
// right, because a star can skip anything, so no backtracking is needed.
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

// pathOf returns the path and the query of a URL, beginning with a slash and without the
// fragment. A "://" within a path or a query is no scheme's.
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

// oneForm writes equal paths and queries alike (2.2.2): what need not be percent-encoded is
// decoded, everything else is encoded. In a target that includes * and $, so that a star in a
// pattern is always a wildcard.
func oneForm(path string, pattern bool) string {
	encode := func(c byte) bool { return c <= ' ' || c >= 0x7f || c == '$' || c == '*' && !pattern }
	// The unreserved characters of RFC 3986, and reserved ones that separate nothing there. So %2F
	// is no slash in a path, but it is one in a query.
	inPath := func(c byte) bool { return canonical.Alphanumeric(c) || strings.IndexByte("-._~:@!'(),;[]", c) >= 0 }
	inQuery := func(c byte) bool { return inPath(c) || c == '/' || c == '?' }
	path, query, ok := strings.Cut(path, "?")
	path = canonical.Percent(path, inPath, encode)
	if ok {
		path += "?" + canonical.Percent(query, inQuery, encode)
	}
	return path
}
