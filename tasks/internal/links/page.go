package links

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	whatwg "github.com/nlnwa/whatwg-url/url"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// MaxLinks is the maximum number of different references that FromPage reads from a page.
const MaxLinks = 10_000

// maxText is the maximum sum of the lengths of a page's references, in bytes. The URL against which
// a reference is resolved adds to its length.
const maxText = 2 << 20

// maxTag is the maximum size of a tag, and of the text of a script, in bytes. A parsed tag with
// many attributes takes much more memory than its text.
const maxTag = 2 << 20

// Page holds the links of an HTML page and its directives for robots.
type Page struct {
	// Links are canonical URLs in the page's order, without duplicates and without links that are
	// marked nofollow. If the page itself is nofollow, Links is empty.
	Links     []string
	NoIndex   bool // the page asks not to be saved; its links may be followed
	Omitted   int  // number of references beyond MaxLinks, or beyond 2 MiB of URLs
	Truncated bool // the parsing stopped at a tag or a script of more than 2 MiB
}

// FromPage parses a page that was fetched from the URL. robotsTags are the values of its
// X-Robots-Tag headers. agent is the crawler's product token, because directives can be for one
// crawler only. FromPage accepts any text as HTML.
//
// It reads the links of a, area, iframe and frame elements, and of link elements with the relation
// next or canonical.
func FromPage(url, contentType string, robotsTags []string, agent string, page []byte) Page {
	r := reader{agent: strings.ToLower(agent), references: map[string]bool{}, seen: map[string]bool{}}
	r.setBase(url)
	for _, tag := range robotsTags {
		r.header(tag)
	}
	text, err := charset.NewReader(bytes.NewReader(page), contentType)
	if err != nil { // an unknown charset; links are mostly ASCII
		text = bytes.NewReader(page)
	}
	z := html.NewTokenizer(text)
	z.SetMaxBuf(maxTag)
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			break
		}
		if kind == html.StartTagToken || kind == html.SelfClosingTagToken {
			r.tag(z)
		}
	}
	r.page.Truncated = errors.Is(z.Err(), html.ErrBufferExceeded)
	if r.noFollow {
		r.page.Links, r.page.Omitted = nil, 0
	}
	return r.page
}

// reader reads the tags of a page.
type reader struct {
	agent      string
	base       *whatwg.Url     // absolute URL against which references are resolved
	baseLen    int             // the length of base
	hasBase    bool            // a base element with href was read; later ones are ignored
	noFollow   bool            // a directive says nofollow, also for the links before the directive
	references map[string]bool // references that were read, as the page writes them
	length     int             // the length of these references, for maxText
	seen       map[string]bool // the URLs in page.Links
	page       Page
}

// setBase sets the base to the URL of a page or to a canonical URL, which are both valid.
func (r *reader) setBase(url string) {
	r.base, _ = whatwg.Parse(url)
	r.baseLen = len(url)
}

// tag handles a start tag: a base, a link, or directives for robots.
func (r *reader) tag(z *html.Tokenizer) {
	name, _ := z.TagName()
	kind := atom.Lookup(name)
	switch kind {
	case atom.Base, atom.A, atom.Area, atom.Iframe, atom.Frame, atom.Link, atom.Meta:
	default:
		return
	}
	attr := attributes(z)
	switch kind {
	case atom.Base:
		if href, ok := attr["href"]; ok && !r.hasBase {
			r.hasBase = true
			if base, err := resolve(r.base, href); err == nil {
				r.setBase(base)
			}
		}
	case atom.A, atom.Area:
		if href, ok := attr["href"]; ok && !hasWord(attr["rel"], "nofollow") {
			r.link(href)
		}
	case atom.Iframe, atom.Frame:
		if src, ok := attr["src"]; ok {
			r.link(src)
		}
	case atom.Link:
		if href, ok := attr["href"]; ok && (hasWord(attr["rel"], "next") || hasWord(attr["rel"], "canonical")) {
			r.link(href)
		}
	case atom.Meta:
		if name := strings.ToLower(attr["name"]); name == "robots" || name == r.agent {
			r.directives(attr["content"])
		}
	}
}

// link adds the URL of a valid reference to the page's links, once.
func (r *reader) link(reference string) {
	reference = strings.TrimSpace(reference)
	if r.references[reference] {
		return
	}
	r.length += r.baseLen + min(len(reference), MaxURL) // resolve rejects longer ones
	if len(r.references) >= MaxLinks || r.length > maxText {
		r.page.Omitted++
		return
	}
	r.references[reference] = true
	if to, err := resolve(r.base, reference); err == nil && !r.seen[to] {
		r.seen[to] = true
		r.page.Links = append(r.page.Links, to)
	}
}

// header reads one X-Robots-Tag: "noindex", or "agent: noindex" for one crawler. A directive with a
// colon, such as "unavailable_after: 1 Jan 2030", looks like one for another crawler and is ignored.
func (r *reader) header(tag string) {
	agent, rest, named := strings.Cut(tag, ":")
	switch {
	case !named, strings.ContainsAny(agent, ", "):
		r.directives(tag)
	case strings.EqualFold(strings.TrimSpace(agent), r.agent):
		r.directives(rest)
	}
}

// directives reads a list of directives for robots: noindex, nofollow, or none, which means both.
// If two lists contradict each other, the stricter one applies.
func (r *reader) directives(text string) {
	for word := range strings.SplitSeq(strings.ToLower(text), ",") {
		switch strings.TrimSpace(word) {
		case "none":
			r.page.NoIndex, r.noFollow = true, true
		case "noindex":
			r.page.NoIndex = true
		case "nofollow":
			r.noFollow = true
		}
	}
}

// attributes returns a tag's attributes by name. If a name occurs twice, its first value counts.
func attributes(z *html.Tokenizer) map[string]string {
	found := map[string]string{}
	for more := true; more; {
		var key, value []byte
		key, value, more = z.TagAttr()
		if _, twice := found[string(key)]; !twice {
			found[string(key)] = string(value)
		}
	}
	return found
}

// hasWord reports whether a list such as "nofollow noopener" has a word, in any case.
func hasWord(text, word string) bool {
	return slices.Contains(strings.Fields(strings.ToLower(text)), word)
}
