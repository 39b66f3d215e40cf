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
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxSize is how many bytes of a file are read: what RFC 9309 asks for at
// least. A line that this cuts through is left out.
const MaxSize = 500 << 10

// MaxWildcards is how many rules with a wildcard are taken as they are for a crawler: each
// has to be tried for each URL. Of more, those that allow are left out, and those that
// disallow count up to their first wildcard: a file that asks for too much is obeyed
// too much.
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
	nothing bool // whether nothing may be fetched
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
		return &File{nothing: true}
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
	p := parser{agent: Token(agent), sitemaps: map[string]bool{}}
	for line := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '\r' || r == '\n' }) {
		line, _, _ = strings.Cut(line, "#")
		if key, value, ok := strings.Cut(line, ":"); ok {
			p.line(strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value))
		}
	}
	p.file.group = p.all
	if p.named {
		p.file.group = p.own
	}
	p.file.rules.order()
	return &p.file
}

// parser reads lines in their order: those that name crawlers, and then rules
// for all of these. A name after a rule begins a new list of crawlers. Rules before
// the first name are nobody's.
type parser struct {
	agent    string // in lower case
	file     File
	sitemaps map[string]bool

	own, all group    // what is said to the crawler, and to those that are not named
	named    bool     // whether it is
	to       []*group // whom the next rule is for
	ruled    bool     // whether there has been a rule for them
}

// line takes in one line, split into its key, in lower case, and its value. A key that
// it does not know changes nothing, and so does not end a list of crawlers.
func (p *parser) line(key, value string) {
	switch key {
	case "user-agent":
		if p.ruled {
			p.to, p.ruled = nil, false
		}
		of := &p.all
		switch token := Token(value); {
		case token == "*":
		case token != "" && token == p.agent:
			of, p.named = &p.own, true
		default:
			return
		}
		if !slices.Contains(p.to, of) {
			p.to = append(p.to, of)
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
		// Not in the RFC, so it does not end a list of crawlers either.
		if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 && !math.IsNaN(seconds) {
			for _, g := range p.to {
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
// That the URL is of the file's own origin is not checked. It takes time in
// proportion to the URL and to the rules with a wildcard, of which there are at most
// MaxWildcards.
func (f *File) Allowed(url string) bool {
	target := canonical(pathOf(url), false)
	if target == "/robots.txt" {
		return true
	}
	return !f.nothing && f.rules.allow(target)
}

// CrawlDelay is how long the crawler should wait between two requests: 0 if the
// file does not say, and at most a day. It is no part of the RFC, but of many files;
// of several the last counts.
func (f *File) CrawlDelay() time.Duration { return f.delay }
