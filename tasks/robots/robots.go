// Package robots reads robots.txt as RFC 9309 has it, and says what a crawler
// may fetch. It does no I/O: fetching and keeping the file is the caller's.
package robots

import (
	"bytes"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxSize is how many bytes of a file are read: what RFC 9309 asks for at
// least. A line that this cuts through is left out.
const MaxSize = 500 << 10

// maxDelay keeps a nonsensical Crawl-delay from stopping a crawl for good.
const maxDelay = 24 * time.Hour

// File is what a host's robots.txt says. The zero value is an empty file, which
// allows everything.
type File struct {
	// Sitemaps are the URLs of its Sitemap lines, as they are written.
	Sitemaps []string

	groups  map[string]*group // by product token in lower case, or "*"
	nothing bool              // whether nothing may be fetched
}

// group is what the file says to one crawler, in all of its groups for it.
type group struct {
	rules []rule
	delay time.Duration
}

// FromAnswer is the file of a host that answered the request for it like that,
// after redirects. Without a file (4xx, or a redirect that leads nowhere)
// everything is allowed; as long as the host cannot tell (5xx) nothing is. A
// host that cannot be reached counts as one that answered 503.
func FromAnswer(status int, body []byte) *File {
	switch {
	case status >= http.StatusInternalServerError:
		return &File{nothing: true}
	case status >= 200 && status < 300:
		return Parse(body)
	}
	return &File{}
}

// Parse reads a file. It takes anything: a line that it does not know is
// skipped, as the RFC asks.
func Parse(text []byte) *File {
	if len(text) > MaxSize {
		text = text[:MaxSize]
		text = text[:1+bytes.LastIndexAny(text, "\r\n")]
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	p := parser{file: &File{groups: map[string]*group{}}}
	for line := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '\r' || r == '\n' }) {
		line, _, _ = strings.Cut(line, "#")
		if key, value, ok := strings.Cut(line, ":"); ok {
			p.line(strings.ToLower(strings.TrimSpace(key)), strings.TrimSpace(value))
		}
	}
	return p.file
}

// parser reads lines in their order: those that name crawlers, and then rules
// for all of these.
type parser struct {
	file   *File
	agents []*group // that the next rule is for
	ruled  bool     // whether there has been a rule for them
}

// line takes in one line, split into its key and its value.
func (p *parser) line(key, value string) {
	switch key {
	case "user-agent":
		if p.ruled {
			p.agents, p.ruled = nil, false
		}
		if token := agentToken(value); token != "" {
			p.agents = append(p.agents, p.file.group(token))
		}
	case "allow", "disallow":
		p.ruled = true
		if value == "" {
			return // an empty path matches nothing
		}
		r := newRule(value, key == "allow")
		for _, g := range p.agents {
			g.rules = append(g.rules, r)
		}
	case "crawl-delay":
		// Not in the RFC, so it does not end a list of crawlers either.
		if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 && !math.IsNaN(seconds) {
			for _, g := range p.agents {
				g.delay = time.Duration(min(seconds, maxDelay.Seconds()) * float64(time.Second))
			}
		}
	case "sitemap":
		if value != "" {
			p.file.Sitemaps = append(p.file.Sitemaps, value)
		}
	}
}

// group is the group of rules for a product token, made where there is none yet.
func (f *File) group(token string) *group {
	if f.groups[token] == nil {
		f.groups[token] = &group{}
	}
	return f.groups[token]
}

// Token is the product token of a User-Agent, in lower case, by which a
// robots.txt and the pages know the crawler: letters, hyphens and underscores.
func Token(agent string) string { return agentToken(agent) }

// agentToken is the product token at the beginning of a User-Agent, in lower
// case: letters, hyphens and underscores, or "*".
func agentToken(text string) string {
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

// forAgent is the group for a crawler: those that name it, or else those for
// all that are not named.
func (f *File) forAgent(agent string) *group {
	if g, ok := f.groups[agentToken(agent)]; ok {
		return g
	}
	if g, ok := f.groups["*"]; ok {
		return g
	}
	return &group{}
}

// Allowed reports whether the crawler may fetch the URL, which is absolute or
// a path with its query. The crawler is named by its product token or its
// whole User-Agent: "headgate" or "headgate/1.2 (+https://example.com)". The
// rule with the longest path that matches decides, and of two as long the one
// that allows.
func (f *File) Allowed(agent, url string) bool {
	target := canonical(pathOf(url), false)
	if target == "/robots.txt" {
		return true
	}
	if f.nothing {
		return false
	}
	allowed, longest := true, -1
	for _, r := range f.forAgent(agent).rules {
		longer := len(r.path) > longest || len(r.path) == longest && r.allow
		if longer && r.matches(target) {
			allowed, longest = r.allow, len(r.path)
		}
	}
	return allowed
}

// CrawlDelay is how long the crawler should wait between two requests: 0 if the
// file does not say, and at most a day.
func (f *File) CrawlDelay(agent string) time.Duration { return f.forAgent(agent).delay }
