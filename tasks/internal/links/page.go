package links

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// MaxLinks is how many references are read of one page, those that are there in the same
// words once. A page with more is mostly made by a program that has no end of them.
const MaxLinks = 10_000

const (
	// maxWork bounds the bytes of references, each with its base: they are read together,
	// and a base can be 2 kB.
	maxWork = 2 << 20
	// maxTag is how long a tag may be, or the text of a script. A tag of megabytes is made of
	// as many attributes, which take many times as much memory.
	maxTag = 2 << 20
	// maxAttributes is how many attributes of a tag are looked at.
	maxAttributes = 100
)

// Page is what a crawl needs of an HTML page.
type Page struct {
	// Links are where it leads to, in canonical form and in the page's order,
	// each once. Those marked nofollow are left out, and so are all if the page
	// asks for that.
	Links []string
	// NoIndex is whether the page asks not to be kept. Its links may be followed all
	// the same, unless it asks against that, too.
	NoIndex bool
	// Beyond is how many references were left out because there are more than MaxLinks, or
	// they are too long together.
	Beyond int
	// Cut is whether a tag or a script of more than 2 MiB ended the reading.
	Cut bool
}

// FromPage reads a page that was fetched from the URL, with the Content-Type
// and the X-Robots-Tag values that it came with. The agent is the crawler's
// product token, by which a page can speak to it alone. It takes anything: HTML
// has no errors.
//
// Links are those of a, area, iframe and frame elements and of link elements that
// are next or canonical: what leads to pages, not what a page is made of, such as
// images, styles and scripts. Forms are not followed. The text is read tag by tag,
// and no tree is made of it.
func FromPage(url, contentType string, robotsTags []string, agent string, page []byte) Page {
	r := reader{agent: strings.ToLower(agent), base: url, read: map[string]bool{}, seen: map[string]bool{}}
	// The header first: what it forbids, no element of the page can allow again.
	for _, tag := range robotsTags {
		r.header(tag)
	}
	text, err := charset.NewReader(bytes.NewReader(page), contentType)
	if err != nil { // for an unknown charset: what links are made of is ASCII
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
	r.page.Cut = errors.Is(z.Err(), html.ErrBufferExceeded)
	if r.noFollow {
		r.page.Links, r.page.Beyond = nil, 0
	}
	return r.page
}

// reader goes through the tags of a page. A meta element may come after links that
// it takes back, so that is done in the end.
type reader struct {
	agent    string
	base     string
	based    bool // whether there has been a base with href: the first counts, even a wrong one
	noFollow bool
	read     map[string]bool // references, as they are written
	seen     map[string]bool // links
	work     int             // bytes of references with their bases
	page     Page
}

// tag takes in what one start tag says: a base, a link, or what robots may do. What
// stands in scripts and comments is no tag to the tokenizer.
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
		href, ok := attr["href"]
		if !ok || r.based {
			return
		}
		r.based = true
		if base, err := Canonical(r.base, href); err == nil {
			r.base = base
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

// link keeps a link that leads somewhere that can be fetched: not mailto:, a script,
// or what is no URL. A fragment leads to the page itself, whose URL is a link then.
func (r *reader) link(reference string) {
	reference = strings.TrimSpace(reference)
	if r.read[reference] {
		return
	}
	r.work += len(r.base) + len(reference)
	if len(r.read) >= MaxLinks || r.work > maxWork {
		r.page.Beyond++
		return
	}
	r.read[reference] = true
	if to, err := Canonical(r.base, reference); err == nil && !r.seen[to] {
		r.seen[to] = true
		r.page.Links = append(r.page.Links, to)
	}
}

// header reads one X-Robots-Tag: "noindex", or "agent: noindex" for one crawler.
// Some directives have a colon of their own, such as "unavailable_after: 1 Jan 2030":
// alone it looks like a crawler of that name, which is not us, and after a comma it
// is one of several, of which the others count.
func (r *reader) header(tag string) {
	agent, rest, named := strings.Cut(tag, ":")
	switch {
	case !named, strings.ContainsAny(agent, ", "):
		r.directives(tag)
	case strings.EqualFold(strings.TrimSpace(agent), r.agent):
		r.directives(rest)
	}
}

// directives reads what a page says to robots, of which only noindex, nofollow and
// none, which is both, mean anything here. What was said once is not taken back: of
// two that contradict each other the stricter counts.
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

// attributes are a tag's by name, in lower case as the tokenizer has them; of two
// with one name HTML takes the first.
func attributes(z *html.Tokenizer) map[string]string {
	found := map[string]string{}
	for range maxAttributes {
		key, value, more := z.TagAttr()
		if _, twice := found[string(key)]; !twice {
			found[string(key)] = string(value)
		}
		if !more {
			break
		}
	}
	return found
}

// hasWord reports whether a list of words has a word, in whatever case, as rel has
// several: "nofollow noopener".
func hasWord(text, word string) bool {
	return slices.Contains(strings.Fields(strings.ToLower(text)), word)
}
