// Package robots reads robots.txt as RFC 9309 has it, and says what a crawler
// may fetch. It does no I/O: fetching and keeping the file is the caller's.
//
// A robots.txt speaks for one origin: scheme, host and port. The caller asks for the
// file once, follows at least five redirects (2.3.1.2), hands the answer to
// [FromAnswer] with its own name, and asks [File.Allowed] for every URL of that origin.
// It should not keep a file for longer than a day (2.4).
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

// MaxSize is how many bytes of a file are read: what RFC 9309 asks for at
// least. A line that this cuts through is left out.
const MaxSize = 500 << 10

// MaxWildcards is how many wildcards a crawler's rules may have in all, because each of them
// is looked for in each URL. Of the rules beyond that, those that allow are left out, and those
// that disallow count up to their first wildcard. So the crawler obeys a file that asks for too
// much by fetching less.
const MaxWildcards = 500

// maxDelay keeps a nonsensical Crawl-delay from stopping a crawl for good. Such a one
// is cut down and not dropped: whoever wrote it wants few requests.
const maxDelay = 24 * time.Hour

// MaxSitemaps is how many Sitemap lines are taken: each page of the origin leads there.
const MaxSitemaps = 1000

// File is what a host's robots.txt says to one crawler. The zero value is an empty file,
// which allows everything. Once read it does not change, so it is safe for concurrent use.
type File struct {
	// Sitemaps are the URLs of its Sitemap lines, as they are written, each once. They
	// are for every crawler, and may be on other hosts.
	Sitemaps []string

	group
}

// group is what the file says to some crawlers, in all of its groups for them: the RFC
// has them combined (2.2.1), wherever in the file they stand.
type group struct {
	rules rules
	delay time.Duration
}

// FromAnswer is the file of a host that answered the request for it like that,
// after redirects. Without a file (4xx, or a redirect that leads nowhere)
// everything is allowed; as long as the host cannot tell (5xx) nothing is. A
// host that cannot be reached counts as one that answered 503. That is 2.3.1 of the
// RFC, which makes no exception for 429: who is told to slow down should ask again
// later instead of taking it for a host without rules.
//
// The crawler is named by its product token or its whole User-Agent: "headgate" or
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

// Parse reads a file for a crawler. It takes anything: a line that it does not know is
// skipped, as the RFC asks. Lines end with CR, LF or both, and # begins a comment
// anywhere in a line.
//
// What binds the crawler are the groups that name it, or else those for all that are
// not named. A token is compared whole: "foo" does not bind "foobot". Rules for * are not
// added to a crawler's own. Others' groups are not kept: rules for each of thousands of
// names would take the square of the file.
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

// parser reads lines in their order: those that name crawlers, and then rules
// for all of these. A name after a rule begins a new list of crawlers. Rules before
// the first name are nobody's.
type parser struct {
	file     File
	sitemaps map[string]bool

	groups map[string]*group // of the crawler, nil until it is named, and of those that are not
	to     []*group          // the groups that the next rule is for
	ruled  bool              // whether they have had a rule
	// delayTo are the groups that the next Crawl-delay is for, and delayed is whether they have
	// had one. RFC 9309 does not know the line, so it does not end a list of crawlers for
	// the rules. But a delay is meant for the names right above it alone.
	delayTo []*group
	delayed bool
}

// line takes in one line, split into its key, in lower case, and its value. A key that
// it does not know changes nothing, and so does not end a list of crawlers.
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
			g.rules.add(newRule(value, key == "allow"))
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

// Token is the product token of a User-Agent, in lower case, by which a
// robots.txt and the pages know the crawler: letters, hyphens and underscores. That
// of "Headgate/1.2 (+https://example.com)" is "headgate". It is empty where a
// User-Agent begins with anything else: only rules for * can mean that one.
// What a file names is read in the same way, and can be "*", too: a version or a whole
// User-Agent, which many write there, does no harm.
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

// Allowed reports whether the crawler may fetch the URL, which is absolute or
// a path with its query. The rule with the longest path that matches decides, and of two
// as long the one that allows (2.2.2): in octets of the canonical path, of which a * is
// one and the $ at the end none. Without such a rule the URL is allowed, and /robots.txt
// is always.
//
// That the URL is of the file's own origin is not checked. The time grows with the length
// of the URL and the number of rules with a wildcard, not with that of the other rules.
func (f *File) Allowed(url string) bool {
	target := oneForm(pathOf(url), false)
	if target == "/robots.txt" {
		return true
	}
	return f.rules.allow(target)
}

// CrawlDelay is how long the crawler should wait between two requests: 0 if the
// file does not say, and at most a day. It is no part of the RFC, but of many files;
// of several the last counts.
func (f *File) CrawlDelay() time.Duration { return f.delay }

// rules are those of a group. Most have no wildcard: a URL finds the longest one that it begins
// with by its own beginnings, however many rules there are.
type rules struct {
	allows    map[string]bool // path without a wildcard → whether it is allowed
	whole     map[string]bool // the same of paths at which the URL has to end
	longest   int             // the length of the longest path in allows
	wild      []rule          // with a wildcard
	wildcards int             // of all in wild
}

func (s *rules) add(r rule) {
	before, _, wild := strings.Cut(r.path, "*")
	stars := strings.Count(r.path, "*")
	switch {
	case wild && s.wildcards+stars <= MaxWildcards:
		s.wild = append(s.wild, r)
		s.wildcards += stars
		return
	case wild && r.allow:
		return
	case wild:
		r.path, r.end = before, false
	}
	to := &s.allows
	if r.end {
		to = &s.whole
	} else {
		s.longest = max(s.longest, len(r.path))
	}
	if *to == nil {
		*to = map[string]bool{}
	}
	(*to)[r.path] = (*to)[r.path] || r.allow
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
	if allow, ok := s.whole[target]; ok {
		take(len(target), allow)
	}
	for end := min(len(target), s.longest); end >= max(longest, 0); end-- {
		if allow, ok := s.allows[target[:end]]; ok {
			take(end, allow)
		}
	}
	for _, r := range s.wild {
		if r.matches(target) {
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
	// Only there: a $ inside a path stands for itself, and oneForm encodes it.
	trimmed, end := strings.CutSuffix(path, "$")
	r := rule{path: oneForm(trimmed, true), end: end, allow: allow}
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

// oneForm writes a path with its query such that two that mean the same are
// the same, as 2.2.2 of the RFC wants them compared: what need not be
// percent-encoded is not, everything else is. A star and a dollar that stand for
// themselves are encoded, so that in a pattern a star is always a wildcard.
func oneForm(path string, pattern bool) string {
	encode := func(c byte) bool { return c <= ' ' || c >= 0x7f || c == '$' || c == '*' && !pattern }
	// The unreserved characters of RFC 3986, and such reserved ones as part nothing where
	// they stand. So %2F in a path is no slash, and in a query it is.
	inPath := func(c byte) bool { return canonical.Alphanumeric(c) || strings.IndexByte("-._~:@!'(),;[]", c) >= 0 }
	inQuery := func(c byte) bool { return inPath(c) || c == '/' || c == '?' }
	path, query, ok := strings.Cut(path, "?")
	path = canonical.Percent(path, inPath, encode)
	if ok {
		path += "?" + canonical.Percent(query, inQuery, encode)
	}
	return path
}
